// Before anything is drawn, so that a page that was left dark does not flash.
(() => {
  const chosen = localStorage.getItem('troupe-theme');
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
