from django.urls import path

from portal.teams import views

urlpatterns = [
    path("team/", views.team, name="team"),
    path("team/invite", views.invite, name="team_invite"),
    path("team/invitations/<int:pk>/withdraw", views.withdraw, name="team_withdraw"),
    path("team/members/<int:pk>/role", views.role, name="team_role"),
    path("team/members/<int:pk>/remove", views.remove, name="team_remove"),
    path("team/switch", views.switch, name="team_switch"),
    path("invitations/<str:token>", views.invitation, name="invitation"),
    path("sign-in/<str:token>", views.signin_link, name="signin_link"),
]
