// Goes through the code of a file, image by image, and finds out what each of its kernels touches.
//
// One image and what is found of it are in memory at a time. The tasks are called on the caller's thread; kernels are
// looked at on several.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analyzer/code_survey/findings.h"

namespace nimble::analyzer {

// A part of an image that tells nothing, and why.
struct UnreadPart {
  std::string what, why;
};

struct ImageFindings {
  std::uint64_t at = 0;                 // in the file
  std::string kind;                     // "fatbin", "cubin", "PTX"
  std::vector<KernelFindings> kernels;  // ascending by name
  std::vector<UnreadPart> unread;
};

struct SurveyTasks {
  std::function<bool(const CodeTarget& target)> wants_target;
  std::function<bool(const std::string& kernel)> wants_kernel;
  std::function<void(const ImageFindings& image)> found;
  // Called now and then: kernels so far, and bytes of the file.
  std::function<void(std::uint64_t kernels, std::uint64_t done, std::uint64_t size)> progress;
};

// Throws InputError for a file that cannot be read or holds no code for a GPU.
void survey_file(const std::string& path, const SurveyTasks& tasks);

}  // namespace nimble::analyzer
