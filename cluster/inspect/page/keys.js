// Keys of the whole page: {key: its action}. None while the user types, or in a dialog; buttons
// keep Enter and Space.
export function listen(keys) {
  document.addEventListener('keydown', (event) => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey ||
        document.querySelector('dialog[open]')) return;
    const { target } = event;
    if (target.closest('input, select, textarea')) return;
    if ((event.key === 'Enter' || event.key === ' ') && target.closest('button, a')) return;
    event.preventDefault();
    action();
  });
}
