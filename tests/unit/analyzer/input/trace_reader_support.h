// Traces for tests of their reader, and what it says of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/input/trace_reader.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer::test {

// What is wrong with a file, without its name; "" where nothing is.
inline std::string error_of(const std::string& text) {
  TempFile file(text);
  try {
    read_trace(file.path());
  } catch (const InputError& error) {
    std::string what = error.what();
    EXPECT_EQ(what.find(file.path()), 0u);
    EXPECT_EQ(what.find('\n'), std::string::npos);
    return what.substr(file.path().size());
  }
  return "";
}

inline TraceText small() {
  TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]", 0, R"(,"code":"00000000000000aB")");
  text.stream();
  text.alloc(0x1000, 0x100);
  text.alloc(0x2000, 0x100, "pinned");
  text.event("nimble.probe",
             R"("chunk":4096,"limit":7,"launches":5,"compared":4,"bytes":99,"ms":1.5,"too_large":2,"why_ended":"x")");
  for (int i = 0; i < 4; ++i) {
    text.alloc_async(0x3000, 0x100);
    text.copy(0x3000, 0x2000, 0x100);
    text.launch(0, hex(0x1000) + hex(0x3000), 0, R"(,"compared":[[4096,256],[12288,256]],"written":[[4096,64]])");
    text.set(0x1000, 64, 0, ",\"value\":1,\"elem\":4");
    text.record(3);
    text.free_async(0x3000);
    text.synchronize();
  }
  return text;
}

}  // namespace nimble::analyzer::test
