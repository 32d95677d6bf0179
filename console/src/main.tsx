import { render } from "preact";
import { Login } from "./login";

const app = document.getElementById("app");
if (app) render(<Login />, app);
