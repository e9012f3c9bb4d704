// What every source of evidence about launches needs to know about a launch's parameters.
//
// Pure functions over one OpQuestion; any thread. No errors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

// Why no declaration of parameters can speak for this launch. Nothing if one can: the parameters are known, and nothing
// else changes what it touches or when.
std::optional<std::string> why_parameters_do_not_tell(const OpQuestion& op);

// What the program created that lets kernels reach memory that no parameter names, or gives memory a second address;
// empty if nothing of the kind. Textures and surfaces count only if `textures` is true: a caller that knows the code
// knows whether it uses them.
std::string hidden_memory(const Trace& trace, bool textures = true);

// The pointer at this place, or null.
const PointerWord* pointer_at(const OpQuestion& op, std::uint32_t at);

// The first pointer that shares a byte with these, or null.
const PointerWord* pointer_that_meets(const OpQuestion& op, std::uint32_t at, std::uint32_t bytes);

// The words of the parameters that are pointers, ascending.
std::vector<std::uint32_t> pointer_words(const OpQuestion& op);

// Adds bytes of the parameters to those that must stay as they are, but for what is a pointer, or a part of one: that
// is another in each process.
void pin_number(const OpQuestion& op, std::uint32_t at, std::uint32_t bytes, PinnedBytes& pieces);

// The pointers among the words of one parameter: a part of op.pointers.
std::span<const PointerWord> pointers_in(const OpQuestion& op, const ParamLayout& param);

// Whether the word at this place looks like an address of memory that the trace does not know, obtained in ways that no
// trace shows (imports, other processes). Two 32-bit sizes side by side look like one, too, so the recorder asks the
// driver which words lead nowhere. The caller has checked that it is not a pointer into a live object.
bool may_lead_elsewhere(const OpQuestion& op, std::uint32_t at);

// Whether a word that is a pointer by its type, so that any value but null counts, leads to memory that the trace does
// not know, or it is not known which.
bool leads_to_unknown(const OpQuestion& op, std::uint32_t at);

// Whether the word at this place is one of op.unsure; whether any in the parameter is.
bool is_unsure(const OpQuestion& op, std::uint32_t at);
bool is_unsure(const OpQuestion& op, const ParamLayout& param);
// Whether one of op.unsure shares a byte with the word at this place: in a packed class a pointer lies across two.
bool is_unsure_near(const OpQuestion& op, std::uint32_t at);

// Whether may_lead_elsewhere() or is_unsure() holds for some word of the parameter other than these.
bool has_stray_address(const OpQuestion& op, const ParamLayout& param, std::span<const std::uint32_t> but = {});

// Appends an access to the whole of an object, which is read in any case.
void add_whole_object(std::uint32_t object, std::uint32_t at, bool writes, std::vector<Access>& found);

// Appends an access to the whole of every object that the parameter points into.
void add_whole(std::span<const PointerWord> pointers, bool writes, std::vector<Access>& found);

}  // namespace nimble::analyzer
