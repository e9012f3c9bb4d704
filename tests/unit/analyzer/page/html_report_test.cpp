#include "analyzer/page/html_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "nimble/internal/files/file_kind.h"
#include "tests/unit/analyzer/ledger/timed_step.h"

namespace nimble::analyzer {
namespace {

// A kernel whose name would end a script, and begin another.
Analysis with_hostile_name() {
  test::TraceText text;
  text.image(true);
  text.function("</script><script>document.title = 1</script><!--", "[[0,8]]");
  text.stream();
  text.alloc(0x100000, 0x1000);
  for (int i = 0; i < 6; ++i) {
    text.launch(0, test::hex(0x100000));
    text.set(0x100000, 64);
  }
  return text.analyze();
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(HtmlReport, IsOneFileThatNimbleKnowsAsItsOwn) {
  const std::string page = html_report(with_hostile_name(), 0);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(has_mark(std::string_view(page).substr(0, 1024), FileKind::page));
  for (const char* placeholder : {"@css@", "@data@", "@d3@", "@script@", "@licence@"})
    EXPECT_EQ(page.find(placeholder), std::string::npos) << placeholder;
  EXPECT_EQ(page.find(" src="), std::string::npos);
  EXPECT_EQ(page.find("<link"), std::string::npos);
  EXPECT_NE(page.find("Redistribution and use in source and binary forms"), std::string::npos);
}

TEST(HtmlReport, NoNameOfTheProgramsIsReadAsHtml) {
  const std::string page = html_report(with_hostile_name(), 0);
  EXPECT_EQ(count_of(page, "</script>"), 3u);
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  bool found = false;
  for (const auto& text : data["texts"])
    found = found || text.get<std::string>().find("</script><script>") != std::string::npos;
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace nimble::analyzer
