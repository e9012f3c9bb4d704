#include "shim/options/option_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace nimble::shim {
namespace {

TEST(OptionTable, NamesAreUniqueAndFindTheirRows) {
  std::set<std::string_view> names;
  for (const OptionRow& row : option_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(&option_row(row.name), &row);
  }
  EXPECT_EQ(variable_of(option_row("hold_us")), "NIMBLE_HOLD_US");
}

TEST(OptionTable, EachRowRefusesWhatItDoesNotName) {
  for (const OptionRow& row : option_rows()) {
    EXPECT_EQ(why_refused(row, row.fallback), "") << row.name;
    if (row.kind == OptionKind::choice || row.kind == OptionKind::flag) {
      std::string words;
      for (const OptionWord& word : row.words) {
        EXPECT_EQ(why_refused(row, word.word), "");
        EXPECT_NE(why_refused(row, std::string(word.word) + "s"), "");
        words += (words.empty() ? "" : ", ") + std::string(word.word);
      }
      EXPECT_EQ(why_refused(row, "Off"), variable_of(row) + "=Off is not one of " + words);
    } else if (row.kind == OptionKind::integer) {
      for (const std::int64_t good : {row.least, row.most}) EXPECT_EQ(why_refused(row, std::to_string(good)), "");
      for (const char* wrong :
           {"", "-1", "+1", " 1", "1 ", "1.5", "0x1", "many", "9223372036854775808", "99999999999999999999"})
        EXPECT_TRUE(why_refused(row, wrong).starts_with(variable_of(row) + "=" + wrong + " is not a number of "))
            << row.name << wrong;
      EXPECT_NE(why_refused(row, std::to_string(row.least - 1)), "");
      EXPECT_NE(why_refused(row, std::to_string(static_cast<std::uint64_t>(row.most) + 1)), "");
    }
  }
  EXPECT_EQ(why_refused(option_row("auto_tries"), "0"), "NIMBLE_AUTO_TRIES=0 is not a number of tries from 1 to 1000");
  EXPECT_EQ(why_refused(option_row("hold_us"), "0"), "NIMBLE_HOLD_US=0 is not a number of microseconds from 1");
}

TEST(OptionTable, AnOptionCountsInItsModes) {
  EXPECT_TRUE(counts_in(option_row("log"), "off"));
  EXPECT_TRUE(counts_in(option_row("stats"), "replay"));
  EXPECT_TRUE(counts_in(option_row("stats"), "auto"));
  EXPECT_FALSE(counts_in(option_row("stats"), "record"));
  EXPECT_FALSE(counts_in(option_row("stats"), "replay, auto"));
}

}  // namespace
}  // namespace nimble::shim
