// NIMBLE_TUNE_SAVE: what replay has found to be the fastest goes into the schedule, so that later runs begin with it.
//
// The file is replaced in one move, and keeps its owner and its mode; a process that reads it meanwhile has the old one
// or the new. What is no schedule any more, or a link, is left alone (include/nimble/internal/files/own_file.h), and
// so is a schedule that is not the one that was replayed. Stateless; one thread. No errors but the reason in words:
// replay has done its work by then.
#pragma once

#include <string>
#include <vector>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/schedule.h"

namespace nimble {

// By kind of step; nothing for those of which nothing was found out. `read`: the file, before the schedule was read
// that was replayed. Empty, or why the file is as it was.
std::string save_choices(const std::string& schedule_path, const FileFacts& read,
                         const std::vector<ScheduleChoice>& choices);

}  // namespace nimble
