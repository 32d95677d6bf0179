"""The contract on the wire.

`payloads` are what can be said, `versioned` how an object of it is written, `envelope` what is around it, `registry`
every payload there is; `check` says what is wrong with a message. The package `bus` sends and receives them.
"""
