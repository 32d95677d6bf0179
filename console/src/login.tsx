export function Login() {
  return (
    <main>
      <h1>Fleetlight</h1>
      <form aria-label="Log in">
        <label>
          User <input name="user" autocomplete="username" />
        </label>
        <label>
          Password <input name="password" type="password" autocomplete="current-password" />
        </label>
        <button type="submit">Log in</button>
      </form>
    </main>
  );
}
