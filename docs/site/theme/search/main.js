// Search, in place of mkdocs' own: its worker and its request for the index are refused to pages that are opened as files.
// The index, search/search_index.json, is therefore also there as a script, which only the page of results loads.
(function () {
  var field = document.getElementById("mkdocs-search-query");
  var list = document.getElementById("mkdocs-search-results");
  if (!field || !list) return;

  function load(names, done) {
    if (names.length === 0) return done();
    var script = document.createElement("script");
    script.src = base_url + "/search/" + names[0];
    script.onload = function () { load(names.slice(1), done); };
    document.head.appendChild(script);
  }

  function add(parent, tag, text) {
    var element = parent.appendChild(document.createElement(tag));
    element.textContent = text;
    return element;
  }

  function show(found, by_location, query) {
    list.textContent = "";
    if (found.length === 0) add(list, "p", list.dataset.noResultsText);
    found.forEach(function (result) {
      var entry = by_location.get(result.ref);
      var article = add(list, "article", "");
      var page = by_location.get(entry.location.split("#")[0]);
      var title = page && page !== entry ? page.title + ": " + entry.title : entry.title;
      add(add(article, "h3", ""), "a", title).href = base_url + "/" + entry.location;
      var at = Math.max(0, entry.text.toLowerCase().indexOf(query.toLowerCase().split(/\s+/)[0]) - 80);
      add(article, "p", (at ? "\u2026 " : "") + entry.text.slice(at, at + 240));
    });
  }

  load(["lunr.js", "search_index.js"], function () {
    var by_location = new Map(search_index.docs.map(function (entry) { return [entry.location, entry]; }));
    lunr.tokenizer.separator = new RegExp(search_index.config.separator);
    var index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 5 });
      this.field("text");
      search_index.docs.forEach(function (entry) { this.add(entry); }, this);
    });
    function search() {
      var query = field.value.trim();
      var found = [];
      try {
        found = query ? index.search(query) : [];
      } catch (error) { // the query is no query yet: `name:` while it is typed
      }
      show(found, by_location, query);
    }
    field.value = new URLSearchParams(window.location.search).get("q") || "";
    field.addEventListener("input", search);
    search();
  });
})();
