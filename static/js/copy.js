// Buttons that copy what a field or a piece of text shows: data-copy is its id.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = (await copied(document.getElementById(button.dataset.copy))) ? "Copied" : "Not copied: press Ctrl+C";
  });
}

// Without a secure connection there is no clipboard for scripts; the selection is then what is left.
async function copied(field) {
  field.focus();
  if (field.select) field.select();
  else getSelection().selectAllChildren(field);
  try {
    await navigator.clipboard.writeText(field.value ?? field.textContent);
    return true;
  } catch (error) {
    console.info("The clipboard is not open to this page:", error.name);
    return document.execCommand("copy");
  }
}
