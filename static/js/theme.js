// Light and dark. Loaded before the stylesheet and not as a module, so that a remembered theme
// is there at the first paint.
(() => {
  const key = "e31-theme";
  const adminKey = "theme"; // where the operators' admin looks for the same choice
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function remembered() {
    try {
      return localStorage.getItem(key);
    } catch (error) {
      console.info("The theme cannot be remembered here:", error.name);
      return null;
    }
  }

  function shown() {
    return root.dataset.theme || (prefersDark.matches ? "dark" : "light");
  }

  function change() {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(key, root.dataset.theme);
      localStorage.setItem(adminKey, root.dataset.theme);
    } catch (error) {
      console.info("The theme cannot be remembered here:", error.name);
    }
  }

  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme-toggle");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", change);
  });
})();
