// The theme asks for this file, which Debian's package leaves out. It gives tables the theme's style, and lets wide ones scroll.
document.querySelectorAll("div.rst-content table").forEach(function (table) {
  table.classList.add("docutils");
  var box = document.createElement("div");
  box.className = "wy-table-responsive";
  table.replaceWith(box);
  box.appendChild(table);
});
