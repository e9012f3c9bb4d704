// Writes a bundle: memory.bin, the images, and at last the manifest (docs/FORMAT.md), so that a bundle with a manifest
// is whole but for its trace. Returns what went wrong, in words; empty where nothing did.
//
// Any thread. What a file of that name held before is gone.
#pragma once

#include <string>
#include <vector>

#include "nimble/bundle.h"
#include "shim/bundle/content_store.h"

namespace nimble::shim {

// Contents in `bundle` name pieces of `store` before, and of the file afterwards. `images` are the bytes of
// bundle.images, whose other fields are filled in. `trace`: the one that is being recorded, which is left alone
// wherever it lies.
std::string write_bundle(const std::string& folder, Bundle& bundle, ContentStore& store,
                         const std::vector<std::string>& images, const std::string& trace);

// Copies a file into the bundle as its trace, if it is not that already.
std::string add_trace(const std::string& folder, const std::string& trace);

}  // namespace nimble::shim
