/** Starts the console: who is logged in, then the page of the address. */

import { render } from "preact";
import { Login } from "./pages/login";
import { Shell } from "./parts/shell";
import { listenToKeys } from "./parts/keys";
import { followLinks } from "./state/address";
import { openSession, session } from "./state/session";
import "./state/preferences";

function Console() {
  const found = session.value;
  switch (found.state) {
    case "asking":
      return <p class="loading">Loading…</p>;
    case "failed":
      return (
        <main class="alone">
          <h1>Fleetlight</h1>
          <p role="alert">{found.reason}</p>
          <button type="button" onClick={() => void openSession()}>
            Try again
          </button>
        </main>
      );
    case "out":
      return <Login ways={found.ways} />;
    case "in":
      return <Shell caller={found.caller} />;
  }
}

addEventListener("click", followLinks);
listenToKeys();
void openSession();
render(<Console />, document.getElementById("console")!);
