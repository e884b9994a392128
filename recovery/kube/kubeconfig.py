"""Reads a kubeconfig with kubernetes_asyncio. Credential plugins are run by `exec_plugin` instead."""

from pathlib import Path

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from recovery.kube.exec_plugin import run_plugin


class _Loader(KubeConfigLoader):
    async def load_from_exec_plugin(self) -> bool:
        assert self._user is not None, "asked of a user with a plugin"
        assert self._cluster is not None, "the context has been read"
        credentials = await run_plugin(
            self._user["exec"].value, _folder(self._user), self._cluster.value, _folder(self._cluster)
        )
        if credentials.token:
            self.token = f"Bearer {credentials.token}"
        if credentials.client_key_data:
            self.cert_file = _file(credentials.client_certificate_data)
            self.key_file = _file(credentials.client_key_data)
        return True


async def load_kubeconfig(paths: str, context: str | None, configuration: Configuration) -> None:
    """Load the kubeconfig into the configuration. `paths`: one file, or several to merge. `context` None: the current.

    Raises ConfigException, and other exceptions for a file that is no kubeconfig (`session._LOAD_ERRORS`).
    """
    merged = KubeConfigMerger(paths).config
    loader = _Loader(config_dict=merged, config_base_path=None, active_context=context)
    await loader.load_and_set(configuration)


def _folder(section: ConfigNode) -> Path:
    """The folder of the file that the section is from."""
    return Path(section.path or "").absolute().parent


def _file(content: str) -> str | None:
    """The path of a temporary file with the content, because Python's TLS reads certificates only from files. The file
    is removed when the process ends."""
    data = {"content": content}
    return FileOrData(data, None, data_key_name="content", base64_file_content=False).as_file()
