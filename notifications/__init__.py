"""The contract on the wire.

`payloads` are what can be said, `versioned` how an object of it is written, `envelope` what is around it, `registry`
every payload there is. `topology` names exchanges, queues and headers; `bus` publishes and receives. `producer` and
`check` are for programs that announce something by themselves. Nothing here imports another package of ours.
"""
