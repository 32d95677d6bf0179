"""The contract on the wire.

`payloads` defines what can be said, `versioned` how an object is written, `envelope` what surrounds it, `registry`
which payloads exist; `check` finds what is wrong with a message. The package `bus` sends and receives messages.
"""
