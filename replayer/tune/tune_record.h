// NIMBLE_TUNE_SAVE: writes the fastest ways into the schedule, so that later runs begin with them.
//
// The file is replaced atomically, and keeps its owner and mode; a concurrent reader gets the old one or the new. A
// file that is no longer a schedule, or a link, is left alone (include/nimble/internal/files/own_file.h), and so is any
// schedule but the replayed one. Stateless; one thread. Errors are only returned as text: replay has done its work by
// then.
#pragma once

#include <string>
#include <vector>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/schedule.h"

namespace nimble {

// By kind of step; nothing for kinds without a result. `read`: the file's facts from before the replayed schedule was
// read. Empty, or why the file was left as it was.
std::string save_choices(const std::string& schedule_path, const FileFacts& read,
                         const std::vector<ScheduleChoice>& choices);

}  // namespace nimble
