'use strict';
// Renews the parts of the page that have changed. The gateway makes and escapes all HTML; without this script the page
// is the same, and stays as it was loaded.
(() => {
  const SILENT_MS = 3500, AGAIN_MS = 3000;
  const at = document.getElementById('at'), state = document.getElementById('state');
  let version = document.body.dataset.version, heard = performance.now(), source = null, begun = 0;

  function renew(id, html) {
    const place = document.getElementById(id);
    const open = [...place.querySelectorAll('details[open]')].map(one => one.id);
    const scrolled = [...place.querySelectorAll('.wide')].map(one => [one.scrollLeft, one.scrollTop]);
    const focused = document.activeElement && place.contains(document.activeElement)
      ? [...place.querySelectorAll('a, summary')].indexOf(document.activeElement) : -1;
    place.innerHTML = html;
    for (const one of open) document.getElementById(one)?.setAttribute('open', '');
    place.querySelectorAll('.wide').forEach((one, number) => {
      [one.scrollLeft, one.scrollTop] = scrolled[number] ?? [0, 0];
    });
    if (focused >= 0) place.querySelectorAll('a, summary')[focused]?.focus({preventScroll: true});
  }

  function follow() {
    source?.close();
    begun = performance.now();
    source = new EventSource('/events?since=' + encodeURIComponent(version));
    source.onmessage = event => {
      const news = JSON.parse(event.data);
      for (const [id, html] of Object.entries(news.sections)) renew(id, html);
      at.textContent = news.at;
      version = event.lastEventId;
      heard = performance.now();
      look();
    };
  }

  function look() {
    const now = performance.now(), isStale = now - heard > SILENT_MS;
    document.body.classList.toggle('stale', isStale);
    state.textContent = isStale ? 'No news since then: the gateway does not answer.' : 'It renews itself.';
    if (source?.readyState === EventSource.CLOSED && !document.hidden && now - begun > AGAIN_MS) follow();
  }

  document.addEventListener('visibilitychange', () => {
    if (document.hidden) source?.close(); else follow();
  });
  setInterval(look, 500);
  follow();
})();
