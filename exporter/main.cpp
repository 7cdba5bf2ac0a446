// SPDX-License-Identifier: Apache-2.0
// sharedgpu-exporter: shows the state of the node's arbiter to Prometheus, over HTTP or as a text file.
#include <prometheus/exposer.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <string>

#include "config/command_line.h"
#include "config/settings.h"
#include "exporter/arbiter.h"
#include "exporter/text_file.h"
#include "protocol/ask.h"
#include "protocol/environment.h"
#include "protocol/split.h"

namespace sharedgpu::exporter {
namespace {

int fail(const std::string& text, int status = EXIT_FAILURE) {
  std::fprintf(stderr, "sharedgpu-exporter: %s\n", text.c_str());
  return status;
}

// Blocks the signals that end the program, and returns them. Threads that are started later inherit the
// blocked signals.
sigset_t block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

// Accepts only the documented forms, PORT and ADDRESS:PORT. The HTTP server itself would understand more,
// such as several addresses.
std::string check_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon == text.npos ? 0 : colon);
  const auto port = parse_number<std::uint16_t>(colon == text.npos ? text : text.substr(colon + 1));
  const bool is_ipv6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool is_address = is_ipv6 ? host.find_first_not_of("0123456789abcdefABCDEF:[]") == host.npos
                                  : host.find_first_not_of("0123456789.") == host.npos;
  if (port && is_address && colon != 0) return {};
  return "'" + text + "' is not ADDRESS:PORT (such as 127.0.0.1:9835) or PORT";
}

std::string check_file(const std::string& text) {
  return text.ends_with(".prom") ? ""
                                 : "'" + text + "' does not end in .prom, so node_exporter would not read it";
}

// A client that sends nothing keeps one of the threads for at most two seconds.
int serve(const std::shared_ptr<Arbiter>& arbiter, const std::string& address) {
  const sigset_t ends = block_ends();
  std::signal(SIGPIPE, SIG_IGN);
  try {
    prometheus::Exposer exposer(std::vector<std::string>{"listening_ports", address, "num_threads", "4",
                                                         "request_timeout_ms", "2000"});
    exposer.RegisterCollectable(arbiter);
    int signal = 0;
    sigwait(&ends, &signal);
  } catch (const std::exception& failure) {
    return fail("--listen " + address + ": " + failure.what());
  }
  return EXIT_SUCCESS;
}

// If `interval` is 0, writes the file once. Otherwise writes the file every `interval` seconds until SIGTERM
// or SIGINT, and then removes it, since its values would soon be false.
int write_file(const Arbiter& arbiter, const std::string& path, unsigned interval) {
  const sigset_t ends = block_ends();
  const timespec pause = {.tv_sec = interval, .tv_nsec = 0};
  for (std::string told;;) {
    const std::string problem = write_text_file(path, text_of(arbiter.Collect()));
    if (interval == 0) return problem.empty() ? EXIT_SUCCESS : fail(problem);
    if (problem != told && !problem.empty()) fail(problem);
    told = problem;
    if (sigtimedwait(&ends, nullptr, &pause) > 0) break;
  }
  unlink(path.c_str());
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sharedgpu::exporter

int main(int argc, char** argv) {
  using namespace sharedgpu;
  CLI::App app("Shows the state of this node's arbiter to Prometheus.", "sharedgpu-exporter");
  std::string config;
  std::string address;
  std::string file;
  unsigned interval = 0;
  app.add_option("--config", config, "Settings (default: /etc/sharedgpu/sharedgpu.conf where it exists)")
      ->type_name("FILE");
  CLI::Option* listen = app.add_option("--listen", address, "Serve http://ADDRESS:PORT/metrics")
                            ->type_name("ADDRESS:PORT")
                            ->check(exporter::check_address);
  CLI::Option* textfile = app.add_option("--textfile", file, "Write the metrics to this file once")
                              ->type_name("FILE")
                              ->check(exporter::check_file);
  textfile->excludes(listen);
  app.add_option("--every", interval, "Write the file every so many seconds until a signal")
      ->type_name("SECONDS")
      ->check(CLI::Range(1u, 86400u))
      ->needs(textfile);
  app.set_version_flag("--version", SHAREDGPU_VERSION);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  if (address.empty() && file.empty())
    return exporter::fail("--listen or --textfile is required; see sharedgpu-exporter --help", 2);
  Settings settings;
  const std::string error =
      config.empty() ? read_default_settings(settings) : read_settings(config, settings);
  if (!error.empty()) return exporter::fail(error, 2);
  const char* socket = std::getenv(environment::kSocket);
  if (socket != nullptr && *socket != '\0') settings.socket = socket;
  const auto arbiter =
      std::make_shared<exporter::Arbiter>(settings.socket, answer_patience(settings.arbiter_timeout));
  return file.empty() ? exporter::serve(arbiter, address) : exporter::write_file(*arbiter, file, interval);
}
