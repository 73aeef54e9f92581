// Forms and the address: fields that are not empty are stored in the hash.

/**
 * @param {HTMLFormElement} form
 * @returns {Record<string, string>}
 */
export function formState(form) {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value)]).filter(([, value]) => value));
}

/**
 * @param {HTMLFormElement} form
 * @param {Record<string, string>} state
 */
export function fillForm(form, state) {
  for (const field of /** @type {Iterable<HTMLInputElement>} */ (form.elements)) if (field.name) field.value = state[field.name] ?? "";
}

/**
 * Change the address without leaving the page.
 * @param {string} page
 * @param {Record<string, string>} state
 */
export function rememberIn(page, state) {
  const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== "" && value !== undefined)).toString();
  history.replaceState(history.state, "", query ? `#${page}?${query}` : `#${page}`);
}
