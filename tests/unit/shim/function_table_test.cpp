#include "shim/function_table.h"

#include <gtest/gtest.h>

namespace nimble::shim {
namespace {

// Handles as a driver gives them out: again, when what they named is gone. There is none here to be asked about them.
template <class Handle>
Handle handle(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

const auto kFunction = handle<CUfunction>(0x100);
const void* const kModule = handle<const void*>(0x200);
const void* const kOther = handle<const void*>(0x300);

LoadedImage self_contained(bool is) {
  LoadedImage image;
  image.facts.self_contained = is;
  return image;
}

TEST(FunctionTable, AFunctionIsKnownUntilItsImageIsUnloaded) {
  FunctionTable table;
  table.loaded(kModule, self_contained(true));
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  table.got(kFunction, kModule);
  EXPECT_EQ(&table.find(kFunction), &before);
  table.unloading(kModule);
  table.loaded(kModule, self_contained(false));
  table.got(kFunction, kModule);
  EXPECT_NE(&table.find(kFunction), &before);
}

// Of a context that was destroyed, with its modules, nobody tells the table.
TEST(FunctionTable, AHandleThatComesAgainFromAnotherModuleIsAnotherFunction) {
  FunctionTable table;
  table.loaded(kModule, self_contained(true));
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  table.loaded(kOther, self_contained(false));
  table.got(kFunction, kOther);
  const FunctionInfo& now = table.find(kFunction);
  EXPECT_NE(&now, &before);
  EXPECT_NE(now.image, before.image);
  EXPECT_EQ(&table.find(kFunction), &now);
}

TEST(FunctionTable, AModuleThatComesAgainHasOtherFunctions) {
  FunctionTable table;
  table.loaded(kModule, self_contained(true));
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  table.loaded(kModule, self_contained(false));
  const FunctionInfo& unknown = table.find(kFunction);  // which no such program would launch
  EXPECT_NE(&unknown, &before);
  table.got(kFunction, kModule);
  const FunctionInfo& now = table.find(kFunction);
  EXPECT_NE(&now, &before);
  ASSERT_NE(now.image, nullptr);
  EXPECT_FALSE(now.image->self_contained);
}

TEST(FunctionTable, AKernelWhereAFunctionWasIsDescribedAnew) {
  FunctionTable table;
  table.loaded(kModule, self_contained(true));
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  table.got(reinterpret_cast<CUkernel>(kFunction), kModule);
  EXPECT_NE(&table.find(kFunction), &before);
}

TEST(FunctionTable, AnAddressThatComesAgainIsAnotherVariable) {
  FunctionTable table;
  table.loaded(kModule, self_contained(true));
  table.loaded(kOther, self_contained(true));
  EXPECT_TRUE(table.first_sight_of_global(0x1000, kModule, "weights"));
  EXPECT_FALSE(table.first_sight_of_global(0x1000, kModule, "weights"));
  EXPECT_TRUE(table.first_sight_of_global(0x1000, kOther, "weights"));
  EXPECT_TRUE(table.first_sight_of_global(0x1000, kOther, "bias"));
  EXPECT_EQ(table.global_at(0x1000).name, "bias");
  table.unloading(kModule);  // late: it is not its variable any more
  EXPECT_EQ(table.global_at(0x1000).name, "bias");
}

}  // namespace
}  // namespace nimble::shim
