"""Logins of browsers at an OpenID provider (OpenID Connect Core 1.0), beside those of the strategy of `api.auth`.

`provider` speaks with it (the extra `openid`), `rights` reads what its tokens give, `sessions` keeps that in the
browser's cookies, `strategy` puts them together.
"""
