#include "analyzer/access/trust.h"

#include <utility>

namespace nimble::analyzer {
namespace {

class LeftOut : public AccessSource {
 public:
  LeftOut(std::unique_ptr<AccessSource> source, Evidence trust) : source_(std::move(source)), trust_(trust) {}

  Evidence evidence() const override { return source_->evidence(); }
  std::string basis(const OpQuestion& op) override { return source_->basis(op); }

  bool ask(const OpQuestion& op, std::vector<Access>&, std::string& why_not) override {
    dropped_.clear();
    if (!source_->ask(op, dropped_, why_not)) return false;
    why_not = "only known from " + source_->basis(op);
    why_not.append(" (").append(name(source_->evidence())).append("); --trust ").append(name(trust_));
    why_not.append(" excludes it");
    return false;
  }

 private:
  std::unique_ptr<AccessSource> source_;
  Evidence trust_;
  std::vector<Access> dropped_;
};

}  // namespace

constinit const Evidence kDefaultTrust = Evidence::proven;

std::unique_ptr<AccessSource> within_trust(std::unique_ptr<AccessSource> source, Evidence trust) {
  if (source->evidence() <= trust) return source;
  return std::make_unique<LeftOut>(std::move(source), trust);
}

}  // namespace nimble::analyzer
