// Writes a bundle: memory.bin, the images, and at last the manifest (docs/reference/formats.md), so that a bundle with
// a manifest is complete except for its trace. Functions return an error message; empty on success.
//
// The folder is the wanted one if nothing in it is in the way, else one in its place
// (include/nimble/internal/files/own_file.h): other programs' files are left alone, and so are folders in use by
// another process. A previous bundle is removed. Only the owner may read the files and new folders. Used by one thread
// at a time.
#pragma once

#include <string>
#include <vector>

#include "nimble/internal/bundle.h"
#include "nimble/internal/process/quiet_file.h"
#include "shim/record/observers/bundle/content_store.h"

namespace nimble::shim {

class BundleFolder {
 public:
  // A relative name is relative to the process's present folder.
  BundleFolder();

  // Contents in `bundle` name pieces of `store` before, and of the file afterwards. `images` are the bytes of
  // bundle.images, whose other fields this fills in. `wanted`: the folder; the same each time.
  std::string write(const std::string& wanted, Bundle& bundle, ContentStore& store,
                    const std::vector<std::string>& images);

  // Copies a file into the bundle as its trace, unless it is that already.
  std::string add_trace(const std::string& trace);

  // Valid once there is a folder.
  const std::string& path() const { return path_; }
  // Why it is not the wanted one; empty if it is.
  const std::string& why_other() const { return why_other_; }

  // Unlocks it: other processes may replace it from now on.
  void let_go() noexcept;
  // In a forked child: closes its copy, which keeps the folder locked.
  void forked() noexcept { lock_.close(); }

 private:
  // What write() and add_trace() do. If it fails, errno is that of the failure.
  std::string write_files(const std::string& wanted, Bundle& bundle, ContentStore& store,
                          const std::vector<std::string>& images);
  std::string copy_trace(const std::string& trace) const;
  std::string take(const std::string& wanted, const Bundle& bundle);

  // Independent of the process's present folder.
  std::string place_of(const std::string& folder) const;

  std::string base_, path_, place_, why_other_;
  QuietFile lock_;  // the folder
};

}  // namespace nimble::shim
