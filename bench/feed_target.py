"""A target of webhooks that takes everything: `python -m bench.feed_target`, which prints its port and ends with its
standard input.
"""

import asyncio
import sys

from aiohttp import web


async def _take(request: web.BaseRequest) -> web.Response:
    await request.read()
    return web.Response(status=204)


async def _serve() -> None:
    runner = web.ServerRunner(web.Server(_take))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
