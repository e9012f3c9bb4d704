#include "shim/rewrite/program_memory/library_memory.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

TEST(LibraryMemory, GoesByTheNameOfTheFile) {
  for (const char* name :
       {"libcudnn.so.9", "libcudnn_ops.so.9.10.2", "libcudnn_engines_precompiled.so.9", "libcudnn_graph.so"})
    EXPECT_TRUE(is_such_a_library(name)) << name;
  for (const char* name : {"", "libcudnn", "libcudnn_mine.so", "libcudnn.so.9 (deleted)", "libmy_cudnn.so.9",
                           "libcudnn.so_9", "libcublas.so.13", "libtorch_cuda.so", "python3.11"})
    EXPECT_FALSE(is_such_a_library(name)) << name;
}

TEST(LibraryMemory, IsNotTheProgramsOwn) {
  LibraryMemory memory;
  memory.came(0x1000, reinterpret_cast<const void*>(&is_such_a_library));  // of this program
  memory.came(0x2000, nullptr);
  EXPECT_FALSE(memory.holds(0x1000));
  EXPECT_FALSE(memory.holds(0x2000));
  EXPECT_FALSE(memory.holds(0x3000));
}

TEST(LibraryMemory, IsTheLibrarysUntilItGoesOrSomethingElseIsThere) {
  constexpr std::uint64_t kAt = 0x302000000;
  int library = 0, program = 0;
  static const void* of_library = nullptr;
  of_library = &library;
  LibraryMemory memory([](const void* place) { return place == of_library; });
  const auto takes = [&](const void* caller) { memory.came(kAt, caller); };
  takes(&library);
  EXPECT_TRUE(memory.holds(kAt));
  EXPECT_FALSE(memory.holds(kAt + 256)) << "asked for by its begin";
  memory.goes(kAt);
  EXPECT_FALSE(memory.holds(kAt));
  takes(&library);
  takes(&program);
  EXPECT_FALSE(memory.holds(kAt));
  takes(&library);
  memory.forget();
  EXPECT_FALSE(memory.holds(kAt));
  of_library = &program;  // which has been loaded where the library was
  takes(&program);
  EXPECT_FALSE(memory.holds(kAt)) << "asked once for each place";
  memory.code_goes();
  takes(&program);
  EXPECT_TRUE(memory.holds(kAt));
}

}  // namespace
}  // namespace nimble::shim
