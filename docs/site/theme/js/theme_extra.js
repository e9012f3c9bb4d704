// The theme asks for this file, which Debian's package leaves out. It gives tables the theme's style, and lets wide ones scroll.
document.querySelectorAll("div.rst-content table").forEach(function (table) {
  table.classList.add("docutils");
  var box = document.createElement("div");
  box.className = "wy-table-responsive";
  table.replaceWith(box);
  box.appendChild(table);
});
// The navigation is long: what is open is scrolled into it.
(function () {
  var open = Array.from(document.querySelectorAll(".wy-menu-vertical li.current > a.current")).pop();
  var side = document.querySelector(".wy-side-scroll");
  if (open && side) side.scrollTop += open.getBoundingClientRect().top - side.clientHeight / 3;
})();
