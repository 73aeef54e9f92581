// A menu covers what is below it, so it closes when the reader leaves it: by Escape, by Tab, or by a click elsewhere.

/**
 * Close the open menus except those that hold a node.
 * @param {Node | null} [node]
 */
export function closeMenus(node = null) {
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const menus = document.querySelectorAll(".menu[open]");
  for (const menu of menus) if (!menu.contains(node)) menu.open = false;
}

export function startMenus() {
  document.addEventListener("keydown", ({ key, target }) => {
    const menu = key === "Escape" && /** @type {Element} */ (target).closest?.(".menu[open]");
    if (menu) menu.querySelector("summary").focus();
    if (key === "Escape") closeMenus();
  });
  document.addEventListener("focusin", ({ target }) => closeMenus(/** @type {Node} */ (target)));
  document.addEventListener("pointerdown", ({ target }) => closeMenus(/** @type {Node} */ (target)));
}
