"""What Ganeti's own hbal says of clusters drawn at random is the measure of scores and outcomes."""

from random import Random

import pytest

from fleetlight.manager.operations.balancing import moves
from fleetlight.manager.operations.balancing.cluster import Cluster, NodeGroup
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.balancing.cluster_file_writer import write_cluster
from fleetlight.manager.operations.balancing.estimates import Estimates
from fleetlight.manager.operations.balancing.known_shares import KnownShares
from fleetlight.manager.operations.balancing.limits import Obstacle
from fleetlight.manager.operations.balancing.move_candidates import moves_with_estimates, placements_with_estimates
from fleetlight.manager.operations.balancing.plan import plan_balance
from fleetlight.manager.operations.balancing.score import score, score_parts
from fleetlight.manager.operations.balancing.situation import NO_NODE, Situation, chosen_groups
from tests.support.oracles.cluster_files import cluster_file
from tests.support.servers.htools import Htools

RESERVED = (0.0, 0.3, 0.8)
EXACT = 1e-6


def drawn(reserved: float, count: int) -> list[tuple[int, str, Cluster, NodeGroup]]:
    """Clusters, each with one of its groups, and the seed that it was drawn with."""
    texts = [(seed, cluster_file(Random(seed), reserved=reserved)) for seed in range(count)]
    return [
        (seed, text, cluster, group)
        for seed, text in texts
        for cluster in (read_cluster(text),)
        for group in chosen_groups(cluster, None)
    ]


@pytest.mark.parametrize("reserved", RESERVED)
def test_score_and_each_of_its_parts_are_those_of_hbal(htools: Htools, reserved: float) -> None:
    compared = 0
    for seed, text, cluster, group in drawn(reserved, 40):
        situation = Situation.of(cluster)
        states = [situation.states[index] for index in situation.group_members(group)]
        balanced = htools.balance(text, group.name, most_moves=0)
        if balanced is None:
            continue
        assert score(states) == pytest.approx(balanced.before, abs=EXACT), seed
        parts = score_parts(states)
        for name, value in balanced.parts.items():
            assert parts.get(name, 0) == pytest.approx(value, abs=EXACT), (seed, name)
        compared += 1
    assert compared > 30


@pytest.mark.parametrize("reserved", RESERVED)
def test_hbal_scores_the_outcome_no_worse_than_before_and_than_its_own_best(htools: Htools, reserved: float) -> None:
    made = 0
    for seed, text, cluster, group in drawn(reserved, 40):
        own = htools.balance(text, group.name)
        if own is None:
            continue
        plan = plan_balance(cluster, group.name)
        outcome = htools.balance(write_cluster(plan.after), group.name, most_moves=0)
        assert outcome is not None
        assert outcome.before <= min(own.before, own.best) + EXACT, seed
        [of_group] = plan.groups
        assert of_group.score_before == pytest.approx(own.before, abs=EXACT), seed
        assert of_group.score_after == pytest.approx(outcome.before, abs=EXACT), seed
        made += len(of_group.moves)
    assert made > 20


def test_without_reservations_moves_gain_what_those_of_hbal_gain(htools: Htools) -> None:
    for seed, text, cluster, group in drawn(0.0, 40):
        own = htools.balance(text, group.name)
        if own is not None:
            [of_group] = plan_balance(cluster, group.name).groups
            assert [move.score_after for move in of_group.moves] == pytest.approx(own.scores, abs=EXACT), seed


@pytest.mark.parametrize("reserved", RESERVED)
def test_files_are_written_as_hbal_writes_them(htools: Htools, reserved: float) -> None:
    for seed in range(20):
        text = cluster_file(Random(seed), reserved=reserved)
        assert write_cluster(read_cluster(text)) == htools.saved(text, "group0"), seed


@pytest.mark.parametrize("reserved", RESERVED)
def test_estimates_of_all_moves_are_the_scores_after_them(reserved: float) -> None:
    for seed, _, cluster, group in drawn(reserved, 25):
        situation = Situation.of(cluster)
        members = situation.group_members(group)
        online = [index for index in members if not cluster.nodes[index].is_offline]
        if not online:
            continue
        has_reservations = any(instance.is_forthcoming for instance in cluster.instances)
        states = {index: situation.states[index] for index in members}
        known = KnownShares(situation.states, Estimates(states, has_reservations=has_reservations))
        for placed, place in zip(situation.instances, situation.places, strict=True):
            if place.primary not in members or place.secondary not in (NO_NODE, *members):
                continue
            is_reserved = placed.instance.is_forthcoming
            estimated = {
                candidate.move_of(placed.index): candidate.estimate
                for candidate in moves_with_estimates(known, placed, place, online)
            }
            expected = {}
            for move in moves.moves_of(placed, place, online):
                changes = moves.changes_of(situation.states, placed, place, move)
                if not isinstance(changes, Obstacle):
                    expected[move] = score([changes.get(index, situation.states[index]) for index in members])
            assert estimated == pytest.approx(expected, abs=EXACT), (seed, placed.instance.name)
            if not (is_reserved and moves.is_movable(placed.instance)):
                continue
            estimated = {
                candidate.move_of(placed.index): candidate.estimate
                for candidate in placements_with_estimates(known, placed, place, online)
            }
            expected = {}
            for move in moves.placements_of(placed, place, online):
                changes = moves.changes_of_placing(situation.states, placed, place, move.place)
                if not isinstance(changes, Obstacle):
                    expected[move] = score([changes.get(index, situation.states[index]) for index in members])
            assert estimated == pytest.approx(expected, abs=EXACT), (seed, placed.instance.name)
