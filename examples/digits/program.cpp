// The command line, and what the commands print.
#include "program.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "dataset.h"
#include "driver.h"
#include "error.h"
#include "inference.h"
#include "trainer.h"
#include "weights.h"

namespace digits {
namespace {

struct Options {
  std::filesystem::path home;  // where the executable is; the kernels and the data lie beside it
  std::filesystem::path data, weights, save, stats;
  TrainOptions train;
  int batch = 1, repeat = 100;
  bool quiet = false;
};

// Times measured on the simulated driver are not a GPU's.
bool is_simulated(const Device& device) { return device.image().extension() == ".simcuda"; }
const char* simulated_word(const Device& device) { return is_simulated(device) ? " (simulated)" : ""; }

void write_stats(const std::filesystem::path& file, const nlohmann::ordered_json& stats) {
  if (file.empty()) return;
  std::ofstream out(file);
  out << stats.dump(2) << '\n';
  out.close();
  if (!out) throw Error("cannot write " + file.string());
}

void run_train(const Options& options, const Makers& make) {
  const Split data = split_dataset(read_dataset(options.data));
  const Device device(options.home);
  const std::unique_ptr<Stream> stream = make.stream();
  const std::unique_ptr<Network> network = make.network(device, *stream, initial_parameters(options.train.seed));
  const TrainReport report = train(*network, *stream, data, options.train, [&](const EpochReport& epoch) {
    if (options.quiet) return;
    std::printf("epoch %d: %d steps, loss %.4f, accuracy %.2f %%\n", epoch.epoch, epoch.steps, epoch.loss,
                100 * epoch.accuracy);
    std::fflush(stdout);
  });
  const Parameters trained = network->parameters();
  const std::string digest = weights_digest(trained);
  if (!options.save.empty()) save_weights(trained, options.save);

  std::printf("device: %s\n", device.name().c_str());
  std::printf("steps: %d of %llu operations, %.1f us on the host, %.1f us on the device%s\n", report.steps,
              static_cast<unsigned long long>(report.operations_per_step), report.host_us_per_step,
              report.gpu_us_per_step, simulated_word(device));
  std::printf("accuracy: %.2f %%\n", 100 * report.accuracy);
  std::printf("weights: %s xxh3 %s\n", options.save.empty() ? "(not saved)" : options.save.c_str(), digest.c_str());
  write_stats(options.stats, {{"command", "train"},
                              {"device", device.name()},
                              {"simulated", is_simulated(device)},
                              {"seed", options.train.seed},
                              {"batch", options.train.batch},
                              {"steps", report.steps},
                              {"ops_per_step", report.operations_per_step},
                              {"host_us_per_step", report.host_us_per_step},
                              {"host_cpu_us_per_step", report.host_cpu_us_per_step},
                              {"gpu_us_per_step", report.gpu_us_per_step},
                              {"loss", report.loss},
                              {"accuracy", report.accuracy},
                              {"weights_xxh3", digest}});
}

void run_infer(const Options& options, const Makers& make) {
  const Split data = split_dataset(read_dataset(options.data));
  const Parameters weights = load_weights(options.weights);
  if (options.batch > data.test.size())
    throw Error("a batch of " + std::to_string(options.batch) + " is more than the " +
                std::to_string(data.test.size()) + " images for testing");
  const Device device(options.home);
  const std::unique_ptr<Stream> stream = make.stream();
  const std::unique_ptr<Network> network = make.network(device, *stream, weights);
  const double accuracy = Accuracy(data.test).measure(*network, *stream);
  const std::vector<double> latencies = measure_latency(*network, *stream, data.test, options.batch, options.repeat);
  const double p50 = percentile(latencies, 0.5), p90 = percentile(latencies, 0.9), p99 = percentile(latencies, 0.99);

  std::printf("device: %s\n", device.name().c_str());
  std::printf("accuracy: %.2f %% of %d images\n", 100 * accuracy, data.test.size());
  std::printf("latency: batch %d, %d runs: p50 %.1f us, p90 %.1f us, p99 %.1f us%s\n", options.batch, options.repeat,
              p50, p90, p99, simulated_word(device));
  write_stats(options.stats, {{"command", "infer"},
                              {"device", device.name()},
                              {"simulated", is_simulated(device)},
                              {"accuracy", accuracy},
                              {"batch", options.batch},
                              {"repeat", options.repeat},
                              {"latency_us", {{"p50", p50}, {"p90", p90}, {"p99", p99}}}});
}

void run_device(const Options& options) {
  const Device device(options.home);
  int driver = 0;
  check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
  std::printf("device: %s\n", device.name().c_str());
  std::printf("compute capability: %d.%d\n", device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
              device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  std::printf("multiprocessors: %d\n", device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  std::printf("memory: %zu MiB\n", device.memory_bytes() >> 20);
  std::printf("driver: CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
  std::printf("kernels: %s\n", device.image().c_str());
}

void add_common_options(CLI::App& command, Options& options) {
  command.add_option("--data", options.data, "Data file (default: optdigits.csv beside the program)");
  command.add_option("--stats", options.stats, "Write what was measured to this file, as JSON");
}

void add_train_options(CLI::App& command, Options& options) {
  TrainOptions& train = options.train;
  command.add_option("--epochs", train.epochs, "Passes over the training images")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command.add_option("--steps", train.steps, "Stop after so many steps")->check(CLI::Range(1, 1000000000));
  command.add_option("--batch", train.batch, "Images in a step")->check(CLI::Range(1, 100000))->capture_default_str();
  command.add_option("--seed", train.seed, "Seed of the first weights and of the order of the images")
      ->capture_default_str();
  command.add_option("--lr", train.rate, "Learning rate of the first epoch; it falls linearly to the last")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--momentum", train.momentum, "Momentum")->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command.add_option("--save", options.save, "Write the trained weights to this file");
  command.add_flag("--quiet", options.quiet, "Print no line for each epoch");
}

void add_infer_options(CLI::App& command, Options& options) {
  command.add_option("--weights", options.weights, "Weights that `digits train --save` wrote")->required();
  command.add_option("--batch", options.batch, "Images in a run")->check(CLI::Range(1, 100000))->capture_default_str();
  command.add_option("--repeat", options.repeat, "Runs")->check(CLI::Range(1, 100000000))->capture_default_str();
}

int run(int argc, char** argv, const Makers& make) {
  Options options;
  options.home = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  options.data = options.home / "optdigits.csv";

  CLI::App app("Trains and runs an Inception-style network on images of handwritten digits.", "digits");
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "Train the network, and print its accuracy");
  CLI::App* infer = app.add_subcommand("infer", "Load weights, and print their accuracy and the latency");
  CLI::App* device = app.add_subcommand("device", "Print what the program would run on");
  add_common_options(*train, options);
  add_train_options(*train, options);
  add_common_options(*infer, options);
  add_infer_options(*infer, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  if (train->parsed()) run_train(options, make);
  if (infer->parsed()) run_infer(options, make);
  if (device->parsed()) run_device(options);
  return 0;
}

}  // namespace

int program(int argc, char** argv, const Makers& make) {
  try {
    return run(argc, argv, make);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
}

}  // namespace digits
