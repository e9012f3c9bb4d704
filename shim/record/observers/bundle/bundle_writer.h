// Writes a bundle: memory.bin, the images, and at last the manifest (docs/reference/formats.md), so that a bundle with
// a manifest is whole but for its trace. Functions return what went wrong, in words; empty where nothing did.
//
// The folder is the wanted one, where nothing stands in the way in it, or one in its place
// (include/nimble/internal/files/own_file.h): files of others are left alone, and so are folders that another process
// is at. Of a bundle that was there before nothing is left. Files are for their owner alone, and so are folders that
// are made. Used by one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "nimble/internal/bundle.h"
#include "nimble/internal/process/quiet_file.h"
#include "shim/record/observers/bundle/content_store.h"

namespace nimble::shim {

class BundleFolder {
 public:
  // A name that is not absolute is one in the folder that the process is in now.
  BundleFolder();

  // Contents in `bundle` name pieces of `store` before, and of the file afterwards. `images` are the bytes of
  // bundle.images, whose other fields are filled in. `wanted`: the folder; the same each time.
  std::string write(const std::string& wanted, Bundle& bundle, ContentStore& store,
                    const std::vector<std::string>& images);

  // Copies a file into the bundle as its trace, if it is not that already.
  std::string add_trace(const std::string& trace);

  // Once there is one.
  const std::string& path() const { return path_; }
  // Why it is not the wanted one; empty where it is.
  const std::string& why_other() const { return why_other_; }

  // Other processes may replace it from now on.
  void let_go() noexcept;
  // In a forked child: closes its copy, which keeps the folder locked.
  void forked() noexcept { lock_.close(); }

 private:
  std::string take(const std::string& wanted, const Bundle& bundle);

  // Wherever the process is by then.
  std::string place_of(const std::string& folder) const;

  std::string base_, path_, place_, why_other_;
  QuietFile lock_;  // the folder
};

}  // namespace nimble::shim
