"""Logins of browsers at an OpenID provider (OpenID Connect Core 1.0), beside those of the strategy of `api.auth`.

`provider` talks to the provider (the extra `openid`), `rights` reads rights from its tokens, `sessions` keeps them in
the browser's cookies, and `strategy` joins these.
"""
