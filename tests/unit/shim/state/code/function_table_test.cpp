#include "shim/state/code/function_table.h"

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

// The table is not told of a context that was destroyed with its modules.
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

// There are as many records as there were different functions at a time, however often they come and go.
TEST(FunctionTable, CodeThatIsLoadedAgainIsKnownAgain) {
  FunctionTable table;
  LoadedImage image = self_contained(true), other = image;
  image.fingerprint = 1;
  other.fingerprint = 2;
  table.loaded(kModule, image);
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  // As long as it is there the same code is another image.
  table.loaded(kOther, image);
  table.got(handle<CUfunction>(0x101), kOther);
  EXPECT_NE(table.find(handle<CUfunction>(0x101)).image, before.image);
  table.unloading(kModule);
  table.loaded(kModule, other);
  table.got(kFunction, kModule);
  EXPECT_NE(&table.find(kFunction), &before);
  table.loaded(handle<const void*>(0x400), image);
  table.got(handle<CUfunction>(0x102), handle<const void*>(0x400));
  EXPECT_EQ(&table.find(handle<CUfunction>(0x102)), &before);
}

TEST(FunctionTable, ModulesEndWithTheirContext) {
  FunctionTable table;
  const auto context = handle<CUcontext>(0x10), second = handle<CUcontext>(0x20);
  LoadedImage image = self_contained(true);
  image.fingerprint = 1;
  table.loaded(kModule, image, context);
  table.got(kFunction, kModule);
  const FunctionInfo& before = table.find(kFunction);
  table.context_ended(second);
  EXPECT_EQ(&table.find(kFunction), &before);
  table.context_ended(context);
  EXPECT_EQ(table.unloading(kModule), nullptr);
  table.loaded(kOther, image, second);
  table.got(kFunction, kOther);
  EXPECT_EQ(&table.find(kFunction), &before);
}

TEST(FunctionTable, AKernelAtAFunctionsHandleIsDescribedAgain) {
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
