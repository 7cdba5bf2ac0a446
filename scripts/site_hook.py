# SPDX-License-Identifier: Apache-2.0
"""Hook of mkdocs.yml: the site contains README.md as its home page, and all other pages of the repository.

The source of a page stays at its place in the repository, and its links are relative to this place. In the site, a page
of docs/ keeps its name, README.md is index.md, and any other file X is project/X.
"""
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def place_in_site(path: str) -> str:
    """Converts a path in the repository to the path of the same file in the site."""
    if path == "README.md":
        return "index.md"
    return path[len("docs/"):] if path.startswith("docs/") else "project/" + path


def path_in_repository(place: str) -> str:
    if place == "index.md":
        return "README.md"
    return place[len("project/"):] if place.startswith("project/") else "docs/" + place


def slug(heading: str, separator: str) -> str:
    """The anchor of a heading, the same as on the web page of the repository."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def exists(entry) -> bool:
    page = next(iter(entry.values()))
    return isinstance(page, list) or (ROOT / path_in_repository(page)).exists()


def existing(nav: list) -> list:
    """The navigation without pages that do not exist."""
    return [
        {title: existing(page) if isinstance(page, list) else page for title, page in entry.items()}
        for entry in nav
        if exists(entry)
    ]


def pages_of(nav: list):
    for entry in nav:
        for page in entry.values():
            yield from pages_of(page) if isinstance(page, list) else [page]


def on_config(config):
    config["nav"] = existing(config["nav"])
    config["mdx_configs"]["toc"]["slugify"] = slug
    return config


def tracked_files() -> list:
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]


def linked_files(page: str) -> list:
    """The files of the repository to which a page links."""
    folder = posixpath.dirname(page)
    links = LINK.findall((ROOT / page).read_text())
    return [posixpath.normpath(posixpath.join(folder, link[1])) for link in links]


def on_files(files, config):
    tracked = [path for path in tracked_files() if (ROOT / path).is_file() and not path.startswith(".")]
    pages = [path for path in tracked if path.endswith(".md")]
    shown = set(pages).union(*map(linked_files, pages))
    for path in tracked:
        if path.startswith("docs/") or path not in shown:
            continue
        file = File(place_in_site(path), config["docs_dir"], config["site_dir"], config["use_directory_urls"])
        file.abs_src_path = str(ROOT / path)
        files.append(file)
    listed = set(pages_of(config["nav"]))
    for file in files.documentation_pages():
        if not file.src_path.startswith("project/") and file.src_path not in listed:
            raise PluginError(f"docs/{file.src_path} is not in the navigation of mkdocs.yml")
    return files


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(path_in_repository(page.file.src_path))

    def in_site(link):
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if (ROOT / target).is_dir():  # a link to a folder leads to the folder's README
            target = posixpath.join(target, "README.md")
        here = posixpath.dirname(page.file.src_path)
        return link[1] + posixpath.relpath(place_in_site(target), here or ".") + link[3]

    return LINK.sub(in_site, markdown)
