// A call begins as its members say, whatever was on the stack before.
#include "nimble/internal/call.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

namespace nimble {
namespace {

// Made where something else was, so that what is not set would show, and aligned to no more than a Call has to be.
class FreshCall : public ::testing::Test {
 protected:
  FreshCall() {
    std::memset(storage_, 0xa5, sizeof storage_);
    call_ = new (storage_ + alignof(Call)) Call();
  }
  ~FreshCall() override { call_->~Call(); }

  alignas(2 * alignof(Call)) unsigned char storage_[alignof(Call) + sizeof(Call)];
  Call* call_ = nullptr;
};

TEST_F(FreshCall, EachPartBeginsAsItsMembersSay) {
  const Call::Launch launch;
  EXPECT_EQ(call_->launch.function, launch.function);
  EXPECT_EQ(call_->launch.grid, launch.grid);
  EXPECT_EQ(call_->launch.block, launch.block);
  EXPECT_EQ(call_->launch.shared_bytes, launch.shared_bytes);
  EXPECT_EQ(call_->launch.attribute_count, launch.attribute_count);
  EXPECT_EQ(call_->launch.cooperative, launch.cooperative);
  EXPECT_EQ(call_->launch.attributes, launch.attributes);
  EXPECT_EQ(call_->launch.kernel_params, launch.kernel_params);
  EXPECT_EQ(call_->launch.extra, launch.extra);

  const Call::Transfer transfer;
  EXPECT_EQ(call_->transfer.dst.address, transfer.dst.address);
  EXPECT_EQ(call_->transfer.src.pitch, transfer.src.pitch);
  EXPECT_EQ(call_->transfer.width, transfer.width);
  EXPECT_EQ(call_->transfer.height, transfer.height);
  EXPECT_EQ(call_->transfer.value, transfer.value);
  EXPECT_EQ(call_->transfer.element, transfer.element);
  EXPECT_EQ(call_->transfer.host_source, transfer.host_source);
  EXPECT_EQ(call_->transfer.device_source, transfer.device_source);

  const Call::Memory memory;
  EXPECT_EQ(call_->memory.address, memory.address);
  EXPECT_EQ(call_->memory.size, memory.size);
  EXPECT_EQ(call_->memory.kind, memory.kind);
  EXPECT_EQ(call_->memory.own_pool, memory.own_pool);
  EXPECT_EQ(call_->memory.names_pool, memory.names_pool);
  EXPECT_EQ(call_->memory.takes_any_address, memory.takes_any_address);

  const Call::Asked asked;
  EXPECT_EQ(call_->asked.question, asked.question);
  EXPECT_EQ(call_->asked.id, asked.id);
  EXPECT_EQ(call_->asked.sets, asked.sets);
  EXPECT_EQ(call_->asked.of_capture, asked.of_capture);
  EXPECT_EQ(call_->asked.synchronous_copies, asked.synchronous_copies);
  EXPECT_EQ(call_->asked.buffer_id, asked.buffer_id);

  const Call::Graph graph;
  EXPECT_EQ(call_->graph.exec, graph.exec);
  EXPECT_EQ(call_->graph.handle, graph.handle);
  EXPECT_EQ(call_->graph.edit, graph.edit);
}

TEST_F(FreshCall, NamesNothing) {
  EXPECT_STREQ(call_->symbol, "");
  EXPECT_EQ(call_->kind, CallKind::opaque);
  EXPECT_EQ(call_->host, HostEffect::neutral);
  EXPECT_TRUE(call_->plain);
  for (const bool flag : {call_->traced, call_->query, call_->has_stream, call_->brings_code, call_->texture,
                          call_->shown, call_->unordered, call_->of_step, call_->takes_turn})
    EXPECT_FALSE(flag);
  EXPECT_EQ(call_->unseen, 0u);
  EXPECT_EQ(call_->stream, StreamRef());
  EXPECT_EQ(call_->stream.handle, nullptr);
  for (const void* pointer : {static_cast<const void*>(call_->note), call_->caller,
                              static_cast<const void*>(call_->image), static_cast<const void*>(call_->event),
                              static_cast<const void*>(call_->event2), static_cast<const void*>(call_->context)})
    EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(call_->list_accesses, nullptr);
  for (const void* argument : call_->arguments) EXPECT_EQ(argument, nullptr);
  EXPECT_EQ(call_->ends, Ends::nothing);
}

}  // namespace
}  // namespace nimble
