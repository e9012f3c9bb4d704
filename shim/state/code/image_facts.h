// What the shim knows of a loaded image: whether its kernels can reach memory that none of their parameters points to
// (global variables, or calls out of the image: printf, device malloc, dynamic parallelism), and what their PTX proves.
//
// Cubins, PTX and fatbins are read by the code library, kernel by kernel, when a kernel is first launched: reading a
// whole framework when it is loaded would take seconds. Code that we do not understand is not self-contained.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "analyzer/kernel_code/image.h"
#include "analyzer/kernel_code/proof_cache.h"

namespace nimble::shim {

struct ImageFacts {
  bool self_contained = false;
  std::string why;  // if it is not: the first reason found
};

struct LoadedImage {
  ImageFacts facts;                   // of all its kernels at once
  std::shared_ptr<code::Image> code;  // tells of each of them; null if there is none
  std::uint64_t digest = 0;           // of all of it, if `code` has none
  bool by_kernel = false;             // whether `code` also knows self-containedness, and more precisely
  code::Image::Source source;         // all its bytes; none if they are not kept
  // Recognises the image when it is loaded again; 0 if that would take too long. For its facts use `digest`.
  std::uint64_t fingerprint = 0;
};

// What is known of kernels' code in this process; with files, in others. Use files before the first image is loaded.
const std::shared_ptr<code::ProofCache>& proofs();

// From now on LoadedImage::source is set, so that the same code can be loaded again; may copy each image.
void keep_image_bytes();

// `image` is what cuModuleLoadData and its relatives take: ELF, PTX text, a fatbin, or a fatbin's wrapper. Its size is
// not known; only what its own headers announce is read. The program may free it when the driver's call returns, so
// what we read later is copied, unless it is part of a loaded library or of the program: that is read in place, if it
// is still there and unchanged.
LoadedImage load_image(const void* image);

// The same for a file; reads it.
LoadedImage load_image_file(const char* path);

// Reads bytes in place each time it is called, as long as they are there and begin and end as they do now.
code::Image::Source read_in_place(code::Bytes bytes);

// Facts of the whole image, read at once.
ImageFacts image_facts(const void* image);
ImageFacts image_facts_of_file(const char* path);

}  // namespace nimble::shim
