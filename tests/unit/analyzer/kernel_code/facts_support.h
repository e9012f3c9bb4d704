// Facts about a kernel with something in every member.
#pragma once

#include "analyzer/kernel_code/kernel_facts.h"

namespace nimble::code::test {

inline KernelFacts many_facts() {
  KernelFacts facts;
  facts.constants = true;
  facts.why = "it has constant variables (.nv.constant3)";
  facts.accesses = {{{0}, true, false, {}}, {{8, 16}, false, true, {{24, 4, 7, false}, {28, 1, 0, true}}}};
  facts.why_not_proven = "nothing";
  facts.follows_memory = true;
  facts.origin = Origin::other;
  facts.globals = {{"table", true, false}, {"counter", true, true}};
  facts.stored = {8, 12};
  facts.extents.expressions = {{ExpressionOp::param, 64, 8, 0, 0},
                               {ExpressionOp::constant, 64, 0, 0, -5},
                               {ExpressionOp::add, 64, 0, 1, 0},
                               {ExpressionOp::constant, 32, 0, 0, 1}};
  facts.extents.counters = {3};
  facts.extents.groups = {{{0}, true, false, {{2, 4}, {0, 0}}, true, {24}}, {{8, 16}, false, true, {}, false, {}}};
  facts.extents.of_accesses = true;
  facts.extents.doubts = {{3, "it may follow an address from memory", true}};
  facts.params = {{0, 8}, {8, 8}, {16, 8}, {24, 8}};
  facts.image_digest = 0x0123456789abcdef;
  return facts;
}

}  // namespace nimble::code::test
