#include "analyzer/base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

TEST(JsonText, PutsCommasWhereTheyBelong) {
  JsonText out;
  out.open('{').key("a").number(1).key("b").open('[').close(']').newline();
  out.key("c").open('[').newline().open('{').close('}').newline().null().boolean(true).real(0.5).close(']').close('}');
  EXPECT_EQ(out.str(), "{\"a\": 1, \"b\": [],\n\"c\": [\n{},\nnull, true, 0.500]}");
  EXPECT_TRUE(nlohmann::json::accept(out.str()));
}

TEST(JsonText, MakesValidTextOfAnyBytes) {
  test::Random random(19);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (unsigned i = random() % 8; i > 0; --i) {
      const unsigned char interesting[] = {0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98,
                                           0x80, 0xed, 0xa0, 0xff, '"',  '\\', 0,    'a'};
      bytes += random() % 2 ? static_cast<char>(interesting[random() % 16]) : static_cast<char>(random());
    }
    JsonText out;
    out.text(bytes);
    ASSERT_TRUE(nlohmann::json::accept(out.str()));
  }
  JsonText out;
  out.text("Kernel<\xc3\xa9>\n");
  EXPECT_EQ(nlohmann::json::parse(out.str()).get<std::string>(), "Kernel<\xc3\xa9>\n");
}

}  // namespace
}  // namespace nimble::analyzer
