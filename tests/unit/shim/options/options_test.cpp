#include "shim/options/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/access/trust.h"
#include "shim/options/option_table.h"

namespace nimble::shim {
namespace {

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const OptionRow& row : option_rows()) unsetenv(variable_of(row).c_str());
    // The tests may themselves be run by a launcher.
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
};

// The member of each row, by the table: no list of options here.
template <class Member>
void expect_refused(const OptionRow& row, const std::string& text, Member member) {
  const auto usual = member(read_options());
  setenv(variable_of(row).c_str(), text.c_str(), 1);
  const Options options = read_options();
  EXPECT_EQ(member(options), usual) << row.name << "=" << text;
  EXPECT_EQ(options.complaint + options.log_complaint, why_refused(row, text) + ": using " + std::string(row.fallback));
  unsetenv(variable_of(row).c_str());
}

template <class Member, class Value>
void expect_read(const OptionRow& row, std::string_view text, Member member, const Value& value) {
  setenv(variable_of(row).c_str(), std::string(text).c_str(), 1);
  const Options options = read_options();
  EXPECT_EQ(member(options), value) << row.name << "=" << text;
  EXPECT_EQ(options.complaint + options.log_complaint, "") << row.name << "=" << text;
  unsetenv(variable_of(row).c_str());
}

TEST_F(OptionsTest, EachRowIsReadAndKeepsItsDefaultWhereItsValueIsRefused) {
#define NIMBLE_ROW(id)                                     \
  [[maybe_unused]] const OptionRow& row = option_row(#id); \
  const auto member = [](const Options& options) { return options.id; };
#define NIMBLE_WORD(value, word, meaning) expect_read(row, word, member, value);
#define NIMBLE_CHOICE(id, type, fallback, modes, help, words) \
  {                                                           \
    NIMBLE_ROW(id)                                            \
    words expect_refused(row, "no-such-word", member);        \
  }
#define NIMBLE_FLAG(id, fallback, modes, help) \
  {                                            \
    NIMBLE_ROW(id)                             \
    expect_read(row, "on", member, true);      \
    expect_read(row, "off", member, false);    \
    expect_refused(row, "1", member);          \
  }
#define NIMBLE_INTEGER(id, fallback, from, to, unit, modes, help)   \
  {                                                                 \
    NIMBLE_ROW(id)                                                  \
    EXPECT_EQ(member(read_options()), fallback) << #id;             \
    expect_read(row, std::to_string(row.least), member, row.least); \
    expect_read(row, std::to_string(row.most), member, row.most);   \
    expect_refused(row, std::to_string(row.least - 1), member);     \
    expect_refused(row, std::to_string(row.most) + "0", member);    \
  }
#define NIMBLE_PATH(id, fallback, access, modes, help)                             \
  {                                                                                \
    NIMBLE_ROW(id)                                                                 \
    EXPECT_EQ(member(read_options()), fallback) << #id;                            \
    expect_read(row, "a/%p-%r", member, "a/" + std::to_string(::getpid()) + "-0"); \
  }
#define NIMBLE_LIST(id, between, modes, help)                                              \
  {                                                                                        \
    NIMBLE_ROW(id)                                                                         \
    EXPECT_TRUE(member(read_options()).empty()) << #id;                                    \
    expect_read(row, "a" between between "b", member, std::vector<std::string>{"a", "b"}); \
  }
#include "nimble/internal/options.def"
#undef NIMBLE_ROW
}

TEST_F(OptionsTest, NothingSetMeansOff) {
  const Options options = read_options();
  EXPECT_EQ(options.mode, Mode::off);
  EXPECT_EQ(options.trace, "trace.json");
  EXPECT_EQ(options.hold_us, 1000);
  EXPECT_EQ(options.complaint, "");
}

TEST_F(OptionsTest, TrustIsThatOfTheTools) {
  EXPECT_EQ(read_options().trust, analyzer::kDefaultTrust);
  EXPECT_EQ(option_row("trust").fallback, name(analyzer::kDefaultTrust));
}

TEST_F(OptionsTest, RulesTakeTrust) {
  setenv("NIMBLE_RULES", "rules.json", 1);
  for (const char* mode : {"auto", "regions", "off"}) {
    setenv("NIMBLE_MODE", mode, 1);
    setenv("NIMBLE_TRUST", "proven", 1);
    const std::string why = "NIMBLE_RULES: what only a rule says that a kernel reads and writes is not believed; ";
    EXPECT_EQ(read_options().complaint, *mode == 'o' ? "" : why + "NIMBLE_TRUST=declared believes it") << mode;
    setenv("NIMBLE_TRUST", "declared", 1);
    EXPECT_EQ(read_options().complaint, "") << mode;
  }
}

TEST_F(OptionsTest, OnlyAuditsThatAreAskedForAreKnownFromTheOptions) {
  EXPECT_FALSE(read_options().audit_is_set);
  setenv("NIMBLE_AUDIT", "", 1);
  EXPECT_FALSE(read_options().audit_is_set);
  setenv("NIMBLE_AUDIT", "0", 1);
  EXPECT_TRUE(read_options().audit_is_set && read_options().audit == 0);
}

TEST_F(OptionsTest, PyTorchIsPreparedUnlessItIsOff) {
  EXPECT_TRUE(read_options().torch);
  setenv("NIMBLE_TORCH", "off", 1);
  EXPECT_FALSE(read_options().torch);
  setenv("NIMBLE_TORCH", "no", 1);
  EXPECT_TRUE(read_options().torch);
  EXPECT_EQ(read_options().complaint, "NIMBLE_TORCH=no is not one of auto, training, off: using auto");
  setenv("NIMBLE_TORCH", "training", 1);
  EXPECT_TRUE(read_options().torch && read_options().complaint.empty());
}

TEST_F(OptionsTest, ModesAreWords) {
  setenv("NIMBLE_MODE", "record", 1);
  EXPECT_EQ(read_options().mode, Mode::record);
  setenv("NIMBLE_MODE", "replay", 1);
  EXPECT_EQ(read_options().mode, Mode::replay);
  setenv("NIMBLE_MODE", "Record", 1);
  EXPECT_EQ(read_options().mode, Mode::off);
  EXPECT_NE(read_options().complaint.find("NIMBLE_MODE=Record"), std::string::npos);
}

TEST_F(OptionsTest, LaunchesThatAreToWaitAreNotHeldBack) {
  for (const char* mode : {"replay", "auto", "regions", "record"}) {
    setenv("NIMBLE_MODE", mode, 1);
    const bool records = std::string(mode) == "record";
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    EXPECT_EQ(read_options().mode, records ? Mode::record : Mode::off) << mode;
    const std::string why =
        std::string("CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its end: NIMBLE_MODE=") + mode;
    EXPECT_EQ(read_options().complaint, records ? "" : why + " is off");
    setenv("NIMBLE_GRAPHS", "rewrite", 1);
    EXPECT_FALSE(read_options().graphs) << mode;
    unsetenv("NIMBLE_GRAPHS");
    setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
    EXPECT_NE(read_options().mode, Mode::off) << mode;
    unsetenv("CUDA_LAUNCH_BLOCKING");
  }
}

TEST_F(OptionsTest, FileNamesKnowProcessAndRank) {
  setenv("NIMBLE_TRACE", "a-%p-%r-%%-%x.json", 1);
  setenv("RANK", "3", 1);
  EXPECT_EQ(read_options().trace, "a-" + std::to_string(getpid()) + "-3-%-%x.json");
  setenv("NIMBLE_TRACE", "%", 1);
  EXPECT_EQ(read_options().trace, "%");
}

// What each launcher sets for the last of four processes on two nodes, of what could be taken for a rank.
TEST_F(OptionsTest, EveryLauncherTellsTheRank) {
  using Environment = std::vector<std::pair<const char*, const char*>>;
  const std::vector<std::pair<const char*, Environment>> launchers{
      {"torchrun", {{"RANK", "3"}, {"LOCAL_RANK", "1"}, {"GROUP_RANK", "1"}, {"ROLE_RANK", "3"}, {"WORLD_SIZE", "4"}}},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_NODE_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "4"}}},
      {"MPICH", {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}}},
      {"PMIx", {{"PMIX_RANK", "3"}}},
      {"Slurm", {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}, {"SLURM_NTASKS", "4"}}},
      {"torchrun under srun", {{"RANK", "3"}, {"SLURM_PROCID", "1"}}},
      {"mpirun in a batch job", {{"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}, {"SLURM_PROCID", "0"}}},
      {"a rank that is none", {{"RANK", "../first"}, {"PMI_RANK", ""}, {"SLURM_PROCID", "3"}}}};
  setenv("NIMBLE_TRACE", "%r", 1);
  EXPECT_EQ(read_options().trace, "0") << "no launcher";
  for (const auto& [launcher, environment] : launchers) {
    for (const auto& [name, value] : environment) setenv(name, value, 1);
    EXPECT_EQ(read_options().trace, "3") << launcher;
    for (const auto& [name, value] : environment) unsetenv(name);
  }
}

TEST_F(OptionsTest, RanksDoNotWriteOneFile) {
  const auto written = [](const char* mode, const char* name) {
    setenv("NIMBLE_MODE", mode, 1);
    setenv("NIMBLE_TRACE", name, 1);
    setenv("NIMBLE_STATS", name, 1);
    setenv("NIMBLE_SCHEDULE", name, 1);
    const Options options = read_options();
    EXPECT_EQ(options.schedule, name) << "is only read";
    const std::string& own = *mode == 'r' && mode[2] == 'c' ? options.trace : options.stats;
    EXPECT_EQ(options.own_files.empty(), own == name) << own;
    return own;
  };
  EXPECT_EQ(written("record", "trace.json"), "trace.json") << "there is no rank";
  setenv("RANK", "0", 1);
  EXPECT_EQ(written("record", "trace.json"), "trace.json") << "of the first";
  setenv("RANK", "12", 1);
  EXPECT_EQ(written("record", "trace.json"), "trace.12.json");
  EXPECT_EQ(read_options().own_files,
            "rank 12 writes trace.12.json, since trace.json is the first rank's: NIMBLE_TRACE=trace.%r.json names the "
            "file of every rank");
  EXPECT_EQ(read_options().stats, "trace.json") << "which this mode does not write";
  EXPECT_EQ(written("replay", "a.b/stats.json"), "a.b/stats.12.json");
  EXPECT_EQ(written("replay", "a.b/stats"), "a.b/stats.12");
  EXPECT_EQ(written("replay", ".stats"), ".stats.12");
  EXPECT_EQ(written("record", "/dev/null"), "/dev/null");
  unsetenv("NIMBLE_STATS");
  EXPECT_EQ(read_options().stats + read_options().own_files, "") << "nothing is written";
  setenv("NIMBLE_MODE", "record", 1);
  for (const char* name : {"t.%r", "t.%p"}) {
    setenv("NIMBLE_TRACE", name, 1);
    EXPECT_EQ(read_options().own_files, "") << name;
  }
}

TEST_F(OptionsTest, TheBundleLiesBesideTheTraceUnlessItIsNamed) {
  setenv("NIMBLE_MODE", "record", 1);
  EXPECT_FALSE(read_options().capture);
  EXPECT_EQ(read_options().bundle, "bundle");
  setenv("NIMBLE_CAPTURE", "bundle", 1);
  setenv("NIMBLE_TRACE", "some/where/trace.json", 1);
  EXPECT_TRUE(read_options().capture);
  EXPECT_EQ(read_options().bundle, "some/where/bundle");
  EXPECT_EQ(read_options().bundle_limit, 4096);
  setenv("NIMBLE_BUNDLE", "steps/%r", 1);
  setenv("RANK", "3", 1);
  EXPECT_EQ(read_options().bundle, "steps/3");
  // That a folder exists is no reason to share it.
  setenv("NIMBLE_BUNDLE", "/tmp", 1);
  EXPECT_EQ(read_options().bundle, "/tmp.3");
  setenv("NIMBLE_CAPTURE", "all", 1);
  setenv("NIMBLE_BUNDLE_LIMIT", "0", 1);
  EXPECT_FALSE(read_options().capture);
  EXPECT_EQ(read_options().bundle_limit, 4096);
  EXPECT_NE(read_options().complaint.find("NIMBLE_CAPTURE=all is not one of off, bundle"), std::string::npos);
  EXPECT_NE(read_options().complaint.find("NIMBLE_BUNDLE_LIMIT=0 is not a number of MiB"), std::string::npos);
}

TEST_F(OptionsTest, NumbersThatAreNoneKeepTheDefault) {
  for (const char* text : {"0", "-5", "1ms", "", "99999999999999999999"}) {
    setenv("NIMBLE_HOLD_US", text, 1);
    EXPECT_EQ(read_options().hold_us, 1000) << text;
    EXPECT_EQ(read_options().complaint.empty(), *text == '\0') << text;
  }
  setenv("NIMBLE_HOLD_US", "250", 1);
  EXPECT_EQ(read_options().hold_us, 250);
}

TEST_F(OptionsTest, AuditsAreOffUnlessANumberIsGiven) {
  EXPECT_EQ(read_options().audit, 0);
  setenv("NIMBLE_AUDIT", "25", 1);
  EXPECT_EQ(read_options().audit, 25);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* text : {"-1", "often", "3x", "5000000000"}) {
    setenv("NIMBLE_AUDIT", text, 1);
    EXPECT_EQ(read_options().audit, 0) << text;
    EXPECT_NE(read_options().complaint.find("NIMBLE_AUDIT"), std::string::npos) << text;
  }
}

TEST_F(OptionsTest, WhetherReplayTriesIsOneOfThreeWords) {
  EXPECT_EQ(read_options().tune, Tune::start);
  setenv("NIMBLE_TUNE", "off", 1);
  EXPECT_EQ(read_options().tune, Tune::off);
  setenv("NIMBLE_TUNE", "sometimes", 1);
  EXPECT_EQ(read_options().tune, Tune::start);
  EXPECT_NE(read_options().complaint.find("NIMBLE_TUNE"), std::string::npos);
}

TEST_F(OptionsTest, AProbeIsAskedForByName) {
  EXPECT_FALSE(read_options().probe);
  EXPECT_EQ(read_options().probe_limit, 64);
  setenv("NIMBLE_PROBE", "writes", 1);
  setenv("NIMBLE_PROBE_LIMIT", "0", 1);
  EXPECT_TRUE(read_options().probe);
  EXPECT_EQ(read_options().probe_limit, 0);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* text : {"-1", "all", "9999999999999999"}) {
    setenv("NIMBLE_PROBE_LIMIT", text, 1);
    EXPECT_EQ(read_options().probe_limit, 64) << text;
    EXPECT_NE(read_options().complaint, "") << text;
  }
  setenv("NIMBLE_PROBE_FIRST", "400", 1);
  EXPECT_EQ(read_options().probe_first, 400);
  setenv("NIMBLE_PROBE_FIRST", "few", 1);
  EXPECT_EQ(read_options().probe_first, 0);
  setenv("NIMBLE_PROBE", "reads", 1);
  EXPECT_FALSE(read_options().probe);
}

TEST_F(OptionsTest, GraphsAreRewrittenWithoutAModeAlone) {
  EXPECT_FALSE(read_options().graphs);
  setenv("NIMBLE_GRAPHS", "rewrite", 1);
  EXPECT_TRUE(read_options().graphs);
  EXPECT_EQ(read_options().graphs_trace, "") << "no file is named";
  setenv("RANK", "2", 1);
  EXPECT_EQ(read_options().own_files, "") << "so none is written";
  setenv("NIMBLE_TRACE", "graphs.json", 1);
  EXPECT_EQ(read_options().graphs_trace, "graphs.2.json");
  setenv("NIMBLE_MODE", "auto", 1);
  EXPECT_FALSE(read_options().graphs);
  EXPECT_NE(read_options().complaint.find("NIMBLE_GRAPHS=rewrite"), std::string::npos);
  unsetenv("NIMBLE_MODE");
  setenv("NIMBLE_GRAPHS", "on", 1);
  EXPECT_FALSE(read_options().graphs);
  EXPECT_NE(read_options().complaint.find("off, rewrite"), std::string::npos);
}

TEST_F(OptionsTest, Auto) {
  setenv("NIMBLE_MODE", "auto", 1);
  EXPECT_EQ(read_options().mode, Mode::automatic);
  setenv("NIMBLE_MODE", "regions", 1);
  EXPECT_EQ(read_options().mode, Mode::regions);
  setenv("NIMBLE_MODE", "auto", 1);
  EXPECT_TRUE(read_options().rules.empty());
  setenv("NIMBLE_RULES", ":a.json::b.json:", 1);
  setenv("NIMBLE_TRUST", "declared", 1);
  EXPECT_EQ(read_options().rules, (std::vector<std::string>{"a.json", "b.json"}));
  EXPECT_EQ(read_options().auto_limit, 256);
  EXPECT_EQ(read_options().auto_tries, 3);
  EXPECT_EQ(read_options().auto_wait, 0);
  setenv("NIMBLE_AUTO_LIMIT", "7", 1);
  setenv("NIMBLE_AUTO_TRIES", "1", 1);
  setenv("NIMBLE_AUTO_WAIT", "500", 1);
  EXPECT_EQ(read_options().auto_limit, 7);
  EXPECT_EQ(read_options().auto_tries, 1);
  EXPECT_EQ(read_options().auto_wait, 500);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* const wrong : {"-1", "x", "99999999999999999999", "1.5"}) {
    setenv("NIMBLE_AUTO_LIMIT", wrong, 1);
    setenv("NIMBLE_AUTO_TRIES", wrong, 1);
    setenv("NIMBLE_AUTO_WAIT", wrong, 1);
    const Options options = read_options();
    EXPECT_EQ(options.auto_limit, 256) << wrong;
    EXPECT_EQ(options.auto_tries, 3) << wrong;
    EXPECT_EQ(options.auto_wait, 0) << wrong;
    for (const char* const name : {"AUTO_LIMIT", "AUTO_TRIES", "AUTO_WAIT"})
      EXPECT_NE(options.complaint.find(name), std::string::npos) << wrong;
  }
}

TEST_F(OptionsTest, BoundsOfARecording) {
  EXPECT_EQ(read_options().trace_limit, 4096);
  EXPECT_EQ(read_options().steps, 0);
  setenv("NIMBLE_TRACE_LIMIT", "0", 1);
  setenv("NIMBLE_STEPS", "12", 1);
  EXPECT_EQ(read_options().trace_limit, 0);
  EXPECT_EQ(read_options().steps, 12);
  EXPECT_EQ(read_options().complaint, "");
  for (const char* const wrong : {"-1", "x", "99999999999999999999", "1.5"}) {
    setenv("NIMBLE_TRACE_LIMIT", wrong, 1);
    setenv("NIMBLE_STEPS", wrong, 1);
    const Options options = read_options();
    EXPECT_EQ(options.trace_limit, 4096) << wrong;
    EXPECT_EQ(options.steps, 0) << wrong;
    for (const char* const name : {"TRACE_LIMIT", "STEPS"})
      EXPECT_NE(options.complaint.find(name), std::string::npos) << wrong;
  }
}

TEST_F(OptionsTest, TheLogsFileIsThisProcesss) {
  EXPECT_EQ(read_options().log_file, "");
  setenv("NIMBLE_LOG_FILE", "log.%p.txt", 1);
  setenv("RANK", "3", 1);
  EXPECT_EQ(read_options().log_file, "log." + std::to_string(getpid()) + ".txt");
  setenv("NIMBLE_LOG_FILE", "log.%r.txt", 1);
  EXPECT_EQ(read_options().log_file, "log.3.txt");
  EXPECT_EQ(read_options().complaint, "");
}

}  // namespace
}  // namespace nimble::shim
