// SPDX-License-Identifier: Apache-2.0
// Sends and receives the messages between arbiters over UDP. Each message is in a munge credential.
//
// A child process owns the UDP socket and talks to munged, so that neither can block the event loop
// (munge_mail_child.h). While no child runs, messages are lost. Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>

#include "arbiter/daemon/mail.h"
#include "arbiter/daemon/munge_mail_child.h"
#include "arbiter/daemon/system.h"

namespace sharedgpu {

class MungeMail final : public Mail {
 public:
  MungeMail(asio::io_context& loop, const System& system, MailPlace place,
            std::chrono::milliseconds first_pause = std::chrono::seconds(1));
  ~MungeMail() override;
  MungeMail(const MungeMail&) = delete;
  MungeMail& operator=(const MungeMail&) = delete;

  void start(Heard heard) override;
  void send(const std::string& host, const std::string& text) override;

 private:
  void begin();
  void begin_later();
  bool start_child();
  void watch();
  void read_lines();
  void take(const MailLine& line);
  void end_child();

  const System& system_;
  const MailPlace place_;
  Heard heard_;
  asio::steady_timer timer_;              // pause before the next child starts
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::posix::stream_descriptor talk_;   // carries MailLines in both directions
  pid_t child_ = -1;
  std::chrono::milliseconds pause_;
  std::string trouble_;  // the reason that was logged last
};

}  // namespace sharedgpu
