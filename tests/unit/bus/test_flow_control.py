"""What a receiver holds, and what it lets go of: in the order of the queue, and never more than there is room for."""

from dataclasses import dataclass

from fleetlight.bus.flow_control import FlowControl, LetGo

HEARTBEAT_S = 10
PAUSE_S = 5


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def full(clock: Clock) -> FlowControl:
    """Two messages of five bytes were handed out, and more than ten bytes are not held."""
    flow_control = FlowControl(10, HEARTBEAT_S, clock)
    for tag in (1, 2):
        flow_control.add(5)
        flow_control.hand_out([(tag, 5)])
    return flow_control


def test_who_has_just_become_full_lets_go_of_nothing() -> None:
    clock = Clock()
    flow_control = full(clock)
    assert (flow_control.is_full, flow_control.is_in_pause, flow_control.is_behind) == (True, True, False)
    clock.now_s += PAUSE_S
    assert (flow_control.is_in_pause, flow_control.is_behind) == (False, True)


def test_twice_as_much_as_may_be_held_is_too_much_at_once() -> None:
    flow_control = full(Clock())
    flow_control.add(9)
    assert not flow_control.is_behind
    flow_control.add(1)
    assert flow_control.is_behind


def test_what_was_let_go_of_is_given_back_oldest_first_as_far_as_there_is_room() -> None:
    clock = Clock()
    flow_control = full(clock)
    clock.now_s += PAUSE_S
    for tag in (3, 4):
        assert flow_control.lets_go_of(LetGo(tag, 5, tag), redelivered=False)
    assert list(flow_control.to_give_back()) == []
    flow_control.settle([1])
    assert list(flow_control.to_give_back()) == [3]
    flow_control.settle([2])
    assert list(flow_control.to_give_back()) == [4]


def test_what_was_given_back_is_held_when_it_comes_again_and_what_comes_before_it_is_not() -> None:
    flow_control = full(Clock())
    flow_control.lets_go_of(LetGo(3, 5, "third"), redelivered=False)
    flow_control.settle([1])
    assert list(flow_control.to_give_back()) == [3]
    assert flow_control.is_behind
    assert flow_control.lets_go_of(LetGo(4, 5, "fourth"), redelivered=False)
    assert not flow_control.lets_go_of(LetGo(5, 5, "third"), redelivered=True)


def test_what_does_not_come_again_is_overdue_after_two_heartbeats() -> None:
    clock = Clock()
    flow_control = full(clock)
    flow_control.lets_go_of(LetGo(3, 5, "third"), redelivered=False)
    flow_control.settle([1, 2])
    list(flow_control.to_give_back())
    clock.now_s += 2 * HEARTBEAT_S
    assert not flow_control.is_overdue
    clock.now_s += 0.1
    assert flow_control.is_overdue


def test_several_are_acknowledged_at_once_if_nothing_before_them_is_outstanding() -> None:
    flow_control = full(Clock())
    assert flow_control.leading({1}) == [1]
    assert flow_control.leading({2}) == []
    assert flow_control.leading({1, 2}) == [1, 2]
