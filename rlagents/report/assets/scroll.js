// Boxes for what is wider than the screen: they scroll, by finger, wheel or arrow keys, and say that they do.

function scrolling(label, content) {
  const box = h("div", { class: "scroll", role: "region", "aria-label": label }, content);
  const hint = h("p", { class: "hint", hidden: true }, "There is more beside: scroll this table sideways \u2194");
  const whole = h("div", { class: "wide-box" }, hint, h("div", { class: "edges" }, box));
  const look = () => {
    const wide = box.scrollWidth - box.clientWidth;
    const high = box.scrollHeight - box.clientHeight;
    hint.hidden = wide <= 1;
    whole.classList.toggle("more-left", box.scrollLeft > 1);
    whole.classList.toggle("more-right", wide - box.scrollLeft > 1);
    // By keys it is a stop only where there is something to scroll.
    if (wide > 1 || high > 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  box.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(() => requestAnimationFrame(look));
  sizes.observe(box);
  sizes.observe(content);
  return whole;
}
