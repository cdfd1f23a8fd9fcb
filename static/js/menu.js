// The menu of team and account closes as menus do: on Escape, and when something else is pressed.
const menu = document.querySelector("details.menu");

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menu?.open) return;
  const inside = menu.contains(document.activeElement);
  menu.open = false;
  if (inside) menu.querySelector("summary").focus();
});

document.addEventListener("pointerdown", (event) => {
  if (menu?.open && !menu.contains(event.target)) menu.open = false;
});
