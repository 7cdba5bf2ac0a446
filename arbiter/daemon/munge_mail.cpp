// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/munge_mail.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "arbiter/daemon/driver_child.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::minutes kLongestPause{1};
constexpr int kMostAtOnce = 64;  // maximum number of lines that are read before the event loop continues

}  // namespace

MungeMail::MungeMail(asio::io_context& loop, const System& system, MailPlace place,
                     std::chrono::milliseconds first_pause)
    : system_(system),
      place_(std::move(place)),
      timer_(loop),
      death_(loop),
      talk_(loop),
      pause_(first_pause) {}

MungeMail::~MungeMail() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void MungeMail::start(Heard heard) {
  if (heard_) return;
  heard_ = std::move(heard);
  begin();
}

void MungeMail::begin() {
  if (!start_child()) begin_later();
}

void MungeMail::begin_later() {
  timer_.expires_after(pause_);
  pause_ = std::min<std::chrono::milliseconds>(2 * pause_, kLongestPause);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) begin();
  });
}

bool MungeMail::start_child() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours(ends[0]);
  child_ = start_driver_child(UniqueFd(ends[1]), [this](int end) { carry_mail(system_, place_, end); });
  if (child_ < 0) return false;
  UniqueFd pidfd = system_.open_process(child_);
  if (!pidfd || hand_over(ours, talk_) || hand_over(pidfd, death_)) {
    talk_.close();
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
    return false;
  }
  await_death(death_, [this] { end_child(); });
  watch();
  return true;
}

void MungeMail::watch() {
  talk_.async_wait(asio::posix::descriptor_base::wait_read, [this](const asio::error_code& error) {
    if (error || !talk_.is_open()) return;
    read_lines();
  });
}

void MungeMail::read_lines() {
  MailLine line;
  for (int i = 0; i < kMostAtOnce; ++i) {
    const ssize_t size = recv(talk_.native_handle(), &line, sizeof line, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size != sizeof line) return;  // end of file: the watch on `death_` handles the child's death
    take(line);
  }
  watch();
}

void MungeMail::take(const MailLine& line) {
  const std::string host(line.host, strnlen(line.host, sizeof line.host));
  const std::string_view text(line.text, strnlen(line.text, sizeof line.text));
  switch (line.kind) {
    case MailLine::Kind::message:
      return heard_(host, text);
    case MailLine::Kind::ready:
      pause_ = std::chrono::seconds(1);
      if (!std::exchange(trouble_, {}).empty())
        log::info("jobs on several nodes: messages to other arbiters can be sent again");
      return;
    case MailLine::Kind::trouble:
      if (trouble_ == text) return;
      trouble_ = text;
      log::warning("jobs on several nodes: cannot send messages to other arbiters: " + trouble_);
      return;
  }
}

// If the socket is full, the message is lost, which Mail permits.
void MungeMail::send(const std::string& host, const std::string& text) {
  if (!talk_.is_open()) return;
  MailLine line;
  if (host.size() >= sizeof line.host || text.size() >= sizeof line.text) return;
  host.copy(line.host, host.size());
  text.copy(line.text, text.size());
  static_cast<void>(::send(talk_.native_handle(), &line, sizeof line, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void MungeMail::end_child() {
  death_.close();
  waitpid(child_, nullptr, 0);
  child_ = -1;
  if (talk_.is_open()) read_lines();  // logs the reason of the failure if the child has reported it
  talk_.close();
  begin_later();
}

}  // namespace sharedgpu
