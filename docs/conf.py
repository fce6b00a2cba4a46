import os
from importlib.metadata import version as installed_version

# Notebooks are to show their plots, also where the environment asks for a backend without a screen.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"

project = "pymc_hais"
author = "The pymc_hais developers"
project_copyright = author
release = version = installed_version("pymc-hais")

extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx_design"]
exclude_patterns = ["_build"]
nitpicky = True
# The builds need no network, so names of other libraries resolve to no page.
nitpick_ignore_regex = [(r"py:.*", r"(arviz|az|jax|np|numpy|pm|pymc|pytensor|scipy|xarray|xr)\..*")]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_render_markdown_format = "myst"

autodoc_typehints = "none"  # numpydoc states every type in words
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = project
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button-field"],
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "show_prev_next": True,
}
# Each section has its pages in the sidebar; the first page is a menu itself.
html_sidebars = {"index": []}
