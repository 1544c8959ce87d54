// What a person sees of a page: texts that lie on each other, and the contrast of each text with what is behind it.
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const numbers = text => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = '#000';
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return a ? [r, g, b, a / 255] : [0, 0, 0, 0];
  };
  const over = (top, below, alpha = top[3]) => [0, 1, 2].map(n => top[n] * alpha + below[n] * (1 - alpha));
  const shine = color => color.map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, n) => sum + one * [0.2126, 0.7152, 0.0722][n], 0);
  const ratio = (one, other) => {
    const [dark, light] = [shine(one), shine(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  function windowOf(element) {  // that of an SVG within another one is not the box of its contents
    if (element.localName !== 'svg' || !element.ownerSVGElement) return element.getBoundingClientRect();
    const {a, d, e, f} = element.ownerSVGElement.getScreenCTM();
    const [x, y, width, height] = ['x', 'y', 'width', 'height'].map(name => +element.getAttribute(name));
    return {left: e + a * x, top: f + d * y, right: e + a * (x + width), bottom: f + d * (y + height)};
  }
  function clipped(rect, element) {
    let {left, top, right, bottom} = rect;
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      if (at.localName !== 'svg' && !/auto|hidden|scroll/.test(getComputedStyle(at).overflow)) continue;
      if (at.localName !== 'svg' && getComputedStyle(at).display === 'inline') continue;
      const window = windowOf(at);
      left = Math.max(left, window.left); right = Math.min(right, window.right);
      top = Math.max(top, window.top); bottom = Math.min(bottom, window.bottom);
    }
    return {left, top, right, bottom};
  }
  const shown = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || ['SCRIPT', 'STYLE'].includes(parent.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = parent.closest('svg') ? [parent.getBoundingClientRect()] : [...range.getClientRects()];
    for (const box of boxes) {
      const rect = clipped(box, parent);
      if (rect.right - rect.left > 1 && rect.bottom - rect.top > 1) shown.push({node, parent, rect});
    }
  }
  const overlaps = [], edge = 2;
  shown.sort((a, b) => a.rect.top - b.rect.top);
  for (const [place, one] of shown.entries()) {
    for (const other of shown.slice(place + 1)) {
      if (other.rect.top > one.rect.bottom - edge) break;
      const wide = Math.min(one.rect.right, other.rect.right) - Math.max(one.rect.left, other.rect.left);
      const high = Math.min(one.rect.bottom, other.rect.bottom) - other.rect.top;
      if (one.node !== other.node && wide > edge && high > edge) overlaps.push([one.node.data, other.node.data]);
    }
  }
  function behind(parent, rect) {
    const layers = [];
    for (let at = parent; at; at = at.parentElement) {
      layers.unshift(numbers(getComputedStyle(at).backgroundColor));
      if (at.matches('svg.way')) {
        const x = (rect.left + rect.right) / 2, y = (rect.top + rect.bottom) / 2;
        for (const box of at.querySelectorAll('rect')) {
          const place = box.getBoundingClientRect();
          if (place.left < x && x < place.right && place.top < y && y < place.bottom)
            layers.unshift(numbers(getComputedStyle(box).fill));
        }
      }
    }
    return layers.reduce((below, top) => over(top, below), paper);
  }
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const paper = dark ? [18, 18, 18] : [255, 255, 255];
  let least = {ratio: 99, text: ''};
  for (const {node, parent, rect} of shown) {
    const style = getComputedStyle(parent), background = behind(parent, rect);
    let color = over(numbers(parent.closest('svg') ? style.fill : style.color), background);
    for (let at = parent; at; at = at.parentElement) color = over(color, background, +getComputedStyle(at).opacity);
    const found = ratio(color, background);
    if (found < least.ratio) least = {ratio: found, text: node.data, of: parent.outerHTML.slice(0, 120)};
  }
  let edges = 99;
  for (const one of document.querySelectorAll('svg.way rect, svg.way .line, .verdict')) {
    const style = getComputedStyle(one);
    const color = numbers(one.matches('.verdict') ? style.borderLeftColor : style.stroke);
    edges = Math.min(edges, ratio(over(color, paper), paper));
  }
  return {
    texts: shown.length,
    overlaps,
    least,
    edges,
    width: Math.max(document.documentElement.scrollWidth, ...shown.map(one => one.rect.right)),
  };
})()
