#include "analyzer/input/zstd_file.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include "analyzer/base/errors.h"
#include "analyzer/input/trace_reader.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

std::string packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string all_of(const std::string& content) {
  test::TempFile temp(content);
  ZstdFile file(std::fopen(temp.path().c_str(), "rb"), "file");
  std::string text;
  char buffer[1000];
  while (const std::size_t got = file.read(buffer, sizeof buffer)) text.append(buffer, got);
  return text;
}

std::string long_text() {
  test::Random random(1);
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + test::below(random, 20));
  return text;
}

TEST(ZstdFile, IsReadAsItsText) {
  const std::string text = long_text();
  EXPECT_EQ(all_of(packed(text)), text);
  EXPECT_EQ(all_of(packed("one") + packed(" and another")), "one and another");  // as files put together are
  EXPECT_EQ(all_of(packed("")), "");
}

TEST(ZstdFile, WhatIsNotCompressedIsReadAsItIs) {
  for (const std::string& text : {std::string(), std::string("abc"), long_text()}) EXPECT_EQ(all_of(text), text);
}

TEST(ZstdFile, OneThatWasCutOffEndsThere) {
  const std::string text = long_text(), whole = packed(text);
  for (const std::size_t size : {std::size_t{4}, std::size_t{10}, whole.size() / 2, whole.size() - 1}) {
    const std::string part = all_of(whole.substr(0, size));
    EXPECT_TRUE(text.starts_with(part)) << size;
  }
  EXPECT_GT(all_of(whole.substr(0, whole.size() / 2)).size(), 0u);
}

TEST(ZstdFile, OneThatIsDamagedIsRefused) {
  const std::string damaged = packed(long_text()) + "which is no frame";
  EXPECT_THROW(all_of(damaged), InputError);
}

TEST(ZstdFile, ATraceIsTheSameCompressed) {
  test::TraceText trace;
  trace.stream();
  trace.alloc(0x10000, 0x1000);
  for (int i = 0; i < 50; ++i) trace.set(0x10000, 64);
  test::TempFile plain(trace.str()), small(packed(trace.str()));
  const TraceFile one = read_trace(plain.path()), other = read_trace(small.path());
  EXPECT_EQ(one.digest, other.digest);
  EXPECT_EQ(one.trace.calls.size(), other.trace.calls.size());
  EXPECT_TRUE(other.trace.complete);
}

}  // namespace
}  // namespace nimble::analyzer
