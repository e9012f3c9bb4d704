// What replay reads before it begins: the schedule, from its file or as text, and the functions of the driver.
//
// Any thread, without locks: it takes time, and finding functions takes the dynamic loader's lock, which another thread
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
  std::string place;  // of the schedule's file, wherever the program goes since
  FileFacts file;     // that was there before
  Schedule schedule;
  DriverApi driver;
  const char* missing = nullptr;  // a function that the driver does not have
};

Reading read_for_replay(const ReplayOptions& options, CallContext& context);

// What a schedule is of, in words.
std::string describe(const Schedule& schedule);

}  // namespace nimble
