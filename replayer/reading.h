// Reads what replay needs before it begins: the schedule, from its file or a text, and the driver's functions.
//
// Any thread, without locks: it is slow, and looking functions up takes the dynamic loader's lock, which another thread
// may hold while it waits for one of ours. Errors: ScheduleError.
#pragma once

#include <string>

#include "nimble/internal/call.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/schedule.h"
#include "replayer/driver/driver_api.h"
#include "replayer/replayer.h"

namespace nimble {

struct Reading {
  std::string place;  // absolute path of the schedule's file
  FileFacts file;     // its facts from before it was read
  Schedule schedule;
  DriverApi driver;
  const char* missing = nullptr;  // a function that the driver lacks
};

Reading read_for_replay(const ReplayOptions& options, CallContext& context);

// Whether steps are audited.
bool audits(const ReplayOptions& options, const Schedule& schedule);

// On what a schedule's order rests, in words, if on beliefs; else empty.
std::string beliefs_text(const Schedule& schedule);

// A schedule's content, in words.
std::string describe(const Schedule& schedule);

}  // namespace nimble
