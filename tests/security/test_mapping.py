"""ssl.principal.mapping.rules: the cases of Kafka's own tests of them, and what is refused."""

import pytest

from ottla.config import ConfigError
from ottla.security.mapping import Mapping, UnmappedError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_is_for_a_name_counts(subject: str, name: str) -> None:
    assert Mapping(RULES).name(subject) == name


@pytest.mark.parametrize("rules", ["DEFAULT", ""])
def test_without_a_rule_the_name_stays(rules: str) -> None:
    assert Mapping(rules).name("CN=Duke,C=US") == "CN=Duke,C=US"


def test_a_name_that_no_rule_is_for_is_refused() -> None:
    with pytest.raises(UnmappedError, match="no rule"):
        Mapping("RULE:^CN=(.*?),OU=x$/$1/").name("CN=Duke")


@pytest.mark.parametrize("rules", ["default", "DEFAUL", "RULE:CN/$1", "RULE:(/$1/", "RULE:^CN=.*$/$1/", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        Mapping(rules)
